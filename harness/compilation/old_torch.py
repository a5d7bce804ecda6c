"""Recognises code for an older torch, and gives the flags that let it build (``--compat``).

``compat/`` declares again what torch removed. A build uses it only after the same build has failed
over such a name. So no code that builds without it changes its meaning.
"""

from __future__ import annotations

import re
from pathlib import Path

#: The folder of the declarations. The compiler searches it behind the author's own folders.
COMPAT = Path(__file__).resolve().parent / "compat"
_HEADER = "harness_old_torch.h"
_SIGNS = {
    "an AT_DISPATCH macro on x.type()": re.compile(r"error: .*DeprecatedTypeProperties\W.*\WScalarType\b"),
    "AT_CHECK": re.compile(r"error: .*\bAT_CHECK\b"),
    "THC": re.compile(r"error: .*\bTHC/(?:THC|THCGeneral|THCAtomics|THCDeviceUtils)\.(?:h|cuh)\b"),
}


def removed_names(log: str) -> list[str]:
    """Returns what torch removed, ``compat/`` declares again, and a compiler misses.

    Args:
        log: The output of g++, clang++ or nvcc.
    """
    return [name for name, sign in _SIGNS.items() if sign.search(log)]


def hint(log: str) -> str:
    """Returns a line for the author of code for an older torch; empty if the log shows none."""
    names = ", ".join(removed_names(log))
    return f"this is code for an older torch ({names}): `--compat` declares that again" if names else ""


def compat_flags() -> list[str]:
    """Returns the compiler flags that declare again what torch removed."""
    return ["-isystem", str(COMPAT), "-include", str(COMPAT / _HEADER)]


def compat_files() -> list[Path]:
    """Returns the files that influence a build with ``--compat`` and so belong to its key."""
    return [Path(__file__).resolve(), *sorted(path for path in COMPAT.rglob("*") if path.is_file())]

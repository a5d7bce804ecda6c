"""Links libraries with the C++ runtime that torch uses."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

RUNTIME = "libstdc++.so.6"


def runtime_flags(command: Sequence[str]) -> tuple[str, ...]:
    """Returns flags that link the shared libstdc++, also where the compiler finds the static one first.

    With a copy in each library, a stream or an exception that passes from one to another ends the
    process.

    Args:
        command: The C++ compiler, and the arguments that always come first.

    Returns:
        The flags; empty if the compiler does not start or does not know a shared libstdc++.
    """
    return _flags(tuple(command), os.environ.get("PATH", ""))


@functools.cache
def _flags(command: tuple[str, ...], path: str) -> tuple[str, ...]:
    del path  # part of the cache's key: it decides which program runs
    try:
        told = subprocess.run(
            [*command, f"-print-file-name={RUNTIME}"],
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return ()
    # A compiler that does not find the file prints the name as it was given.
    found = Path(told.stdout.decode(errors="replace").strip()).is_absolute()
    return (f"-l:{RUNTIME}",) if found else ()

"""Finds uses of PyTorch's CUDA helpers whose header a source does not include.

``torch/extension.h`` brings none of them, and models forget that often. ``check_includes`` refuses a
build before any compiler runs, so it must be certain: all included files are known, and none of them
includes the header, under whatever condition. Else the compiler decides.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from harness.compilation.errors import BuildFailed
from harness.compilation.functions import are_plain, code_of, texts_of

#: The helpers with the header to include.
_HEADERS = {
    "C10_CUDA_KERNEL_LAUNCH_CHECK": "c10/cuda/CUDAException.h",
    "C10_CUDA_CHECK": "c10/cuda/CUDAException.h",
    "AT_CUDA_CHECK": "ATen/cuda/Exceptions.h",
    "at::cuda::getCurrentCUDAStream": "ATen/cuda/CUDAContext.h",
    "c10::cuda::getCurrentCUDAStream": "c10/cuda/CUDAStream.h",
}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\b[ \t]*(?:([<"][^<>"\n]+)[">])?', re.MULTILINE)
#: A standard header, one of the CUDA toolkit's own, or one of PyTorch's that is for all devices.
_KNOWN = re.compile(r'<[\w.]+|[<"](?:torch/(?:all|extension|torch|types)|ATen/ATen|pybind11/\w+)\.h')
#: What a source could define a helper with, or leave its use out with.
_UNSURE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?!include|pragma)|\bnamespace\s+(?:at|c10)\b|##|%:", re.MULTILINE)
#: The header that ``load_inline`` includes first in ``cuda_sources``.
_IMPLICIT = "torch/types.h"


def check_includes(name: str, cuda_sources: object, flags: object = ()) -> None:
    """Refuses CUDA sources that use a helper of PyTorch's and include no header that declares it.

    Args:
        name: The extension's name.
        cuda_sources: The argument of ``load_inline``.
        flags: Compiler flags and include folders.

    Raises:
        BuildFailed: A header is missing; the message names it.
    """
    code = code_of(cuda_sources)
    used = [helper for helper in _HEADERS if _is_only_called(helper, code)]
    if not used or not are_plain(flags) or _UNSURE.search(code):
        return
    included = [_IMPLICIT]
    for text in texts_of(cuda_sources):
        found = _INCLUDE.findall(text)
        if not all(map(_KNOWN.fullmatch, found)):
            return
        included += [file[1:] for file in found]
    if not any("/cuda/" in header for header in _reached(included)):
        raise BuildFailed(
            f"load_inline({name!r}): cuda_sources uses {used[0]} and includes no header that declares it: add "
            f"#include <{_HEADERS[used[0]]}>"
        )


def _is_only_called(helper: str, code: str) -> bool:
    """Tells whether a source calls a helper and, by its text, does not declare it."""
    called = re.findall(rf"[;{{}}),(=]\s*(?:::)?{re.escape(helper)}\s*\(", code)
    return len(called) == len(re.findall(rf"\b{re.escape(helper)}\b", code)) > 0


def _reached(first: list[str]) -> Iterator[str]:
    """Yields the files of PyTorch's that some file includes, under whatever condition."""
    package = importlib.util.find_spec("torch")
    assert package is not None
    assert package.origin is not None
    root = Path(package.origin).parent / "include"
    folders = (root, root / "torch" / "csrc" / "api" / "include")
    seen, waiting = set(first), list(first)
    while waiting:
        header = waiting.pop()
        yield header
        path = next((folder / header for folder in folders if (folder / header).is_file()), None)
        if path is None:
            continue
        for further in _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
            if further and further[1:] not in seen:
                seen.add(further[1:])
                waiting.append(further[1:])

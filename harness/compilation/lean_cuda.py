"""Prepares GPU builds that use stand-ins for torch's big headers, and decides when they are safe.

nvcc spends over nine tenths of its time on declarations that a candidate never mentions. Nothing is
precompiled: a precompiled ``torch/extension.h`` is 786 MB for each set of flags. If a build with
stand-ins fails, the same build runs with torch's headers and decides, since no compiler message
says whether a missing declaration or the author is at fault.

The stand-ins (``torch_headers``) declare a part of what the originals do, in torch's own words. So
both builds mean the same, unless the text can tell them apart other than by an error. There are
three ways:

- a macro that only one of them defines, or that differs;
- a question whether something is declared;
- a name of its own that would collide with a declaration that the stand-ins omit.

Such a text is built plainly from the start. So is every text that includes files which this module
does not see.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from harness.compilation.torch_headers import LEAN, SELECTION, needs_real_headers, selection, uses_torch_headers

_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"#define (\w+)(.*)")
#: Ways for C++ code to ask whether a declaration exists.
_QUESTIONS = frozenset({"requires", "concept", "void_t", "enable_if", "enable_if_t", "declval", "is_detected"})
_OPENED = re.compile(r"\busing\s+namespace\s+(?:::)?(?:std|torch|at|c10)\b")
#: An ``#include`` of a file of the author's, or of a name from a macro.
_OWN_FILE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"[./]|<[./]|[^"<\s])', re.MULTILINE)
_BEYOND = ("sycl_sources", "with_sycl", "use_pch", "extra_include_paths")
_FLAGS = ("extra_cflags", "extra_cuda_cflags")
_INCLUDING_FLAG = re.compile(r"-I|-i[a-z]|--?(?:pre-)?include|--?options-file|-optf|-Xcompiler=?.*-i", re.IGNORECASE)
_TORCH_ROOT = Path(torch.__file__).resolve().parent


@dataclass(frozen=True)
class _Unit:
    """A translation unit of ``load_inline``.

    It has its folder, its text with torch's first ``#include``, and the names in the text.
    """

    folder: Path
    text: str
    names: frozenset[str]


def lean_arguments(arguments: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Returns the arguments of ``load_inline`` for a build with stand-ins.

    Args:
        arguments: The solution's arguments.
        folder: An empty folder for the build.

    Returns:
        The arguments and an empty reason; or None and the reason why there are none.

    Raises:
        OSError: The folder cannot be written, or the C++ compiler cannot preprocess torch's
            headers.
    """
    cpp, cuda = units = _units(arguments, folder)
    why = _obstacle(arguments, units)
    if why:
        return None, why
    for unit in units:
        unit.folder.mkdir()
        (unit.folder / SELECTION).write_text(selection(unit.names, _TORCH_ROOT), encoding="utf-8")
    chosen = (f'#include "{unit.folder.name}/{SELECTION}"' for unit in (cuda, cpp))
    (folder / SELECTION).write_text("#ifdef __CUDACC__\n{}\n#else\n{}\n#endif\n".format(*chosen), encoding="utf-8")
    telling = _telling_macros(units)
    if telling:
        return None, f"{', '.join(sorted(telling)[:5])}: not the same macro, or none, with the stand-ins"
    copied = {name: list(value) if isinstance(value, list) else value for name, value in arguments.items()}
    return {**copied, "build_directory": str(folder), "extra_include_paths": [str(folder), str(LEAN)]}, ""


def _units(arguments: Mapping[str, Any], folder: Path) -> tuple[_Unit, _Unit]:
    """Returns ``main.cpp`` and ``cuda.cu`` with the torch headers that ``load_inline`` adds."""
    flags = " ".join(word for name in _FLAGS for word in arguments.get(name) or ())
    bindings = "" if arguments.get("functions") is None else "PYBIND11_MODULE wrap_pybind_function"

    def unit(name: str, argument: str, header: str, further: str) -> _Unit:
        given = arguments.get(argument) or []
        text = "\n".join([given] if isinstance(given, str) else given)
        first = "" if arguments.get("no_implicit_headers") else f"#include <torch/{header}.h>\n"
        return _Unit(folder / name, first + text, frozenset(_NAME.findall(f"{text} {flags} {further}")))

    return unit("for_cpp", "cpp_sources", "extension", bindings), unit("for_cuda", "cuda_sources", "types", "")


def _obstacle(arguments: Mapping[str, Any], units: Sequence[_Unit]) -> str:
    """Returns the reason why a build with stand-ins could mean something else.

    Empty if the text shows none.
    """
    if not any(uses_torch_headers(unit.text) for unit in units):
        return "no header of torch's has a stand-in"
    beyond = [name for name in _BEYOND if arguments.get(name)]
    if beyond:
        return f"{beyond[0]} is given"
    for flag in (word for name in _FLAGS for given in arguments.get(name) or () for word in given.split()):
        if _INCLUDING_FLAG.match(flag):
            return f"the flag {flag} brings other files"
    for unit in units:
        asked = unit.names & _QUESTIONS
        if needs_real_headers(unit.text, unit.names):
            return "it needs torch's C++ modules, autograd or scripting"
        if asked:
            return f"{min(asked)} may ask what is declared"
        for pattern in (_OPENED, _OWN_FILE):
            found = pattern.search(unit.text)
            if found:
                return found[0].strip()
    return ""


def _telling_macros(units: Sequence[_Unit]) -> set[str]:
    """Returns the names in the text whose macros differ between torch and the stand-ins."""
    running = [_preprocess(), *(_preprocess(f"-I{unit.folder}", f"-I{LEAN}") for unit in units)]
    original, *stand_ins = (_macros(process) for process in running)
    return {
        name
        for unit, own in zip(units, stand_ins, strict=True)
        for name in unit.names
        if original.get(name) != own.get(name)
    }


def _preprocess(*first: str) -> subprocess.Popen[str]:
    """Starts the C++ compiler to list the macros that ``torch/extension.h`` defines."""
    compiler = shlex.split(cpp_extension.get_cxx_compiler())  # type: ignore[no-untyped-call]
    command = [*compiler, "-std=c++20", "-DTORCH_API_INCLUDE_EXTENSION_H", *first]
    for place in (*cpp_extension.include_paths(), sysconfig.get_path("include")):
        command += ["-isystem", place]
    command += ["-include", "torch/extension.h", "-E", "-dM", "-x", "c++", os.devnull]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _macros(process: subprocess.Popen[str]) -> dict[str, str]:
    listed, _ = process.communicate()
    if process.returncode != 0:
        raise OSError("the C++ compiler does not preprocess torch's headers")
    return {match[1]: match[2] for match in map(_DEFINED.match, listed.splitlines()) if match is not None}

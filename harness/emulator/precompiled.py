"""Headers that nearly every translation unit begins with, compiled once beside the runtime.

Reading torch's headers takes most of a build; g++ reads a precompiled header in a fraction of that.
g++ itself checks whether a precompiled header fits a unit's options. If it does not, or if the file
has gone, g++ reads the text of the same name, which includes the same headers.
"""

from __future__ import annotations

from pathlib import Path

from harness.compilation.torch_headers import LEAN, SELECTION, WITH_PYTHON
from harness.emulator.compiler import INCLUDE, INCLUDE_TORCH, Compiler, Mode, TorchPaths, python_include
from harness.emulator.sources import CPP_HEADERS, CUDA_HEADERS, Unit, implicit_headers
from harness.system.processes import OPEN_FILES

PRELUDE = "cuemu_prelude.h"
_HOST = "host"
#: Ends the names of headers that hold the prelude and nothing of torch's.
_ALONE = "_prelude"
_BINDING = "lean_torch_binding.h"


def compilers(compiler: Compiler, torch: TorchPaths, folder: Path) -> list[list[str]]:
    """Writes the headers' texts and returns the commands that precompile them; none for clang.

    Args:
        compiler: The compiler that will use them.
        torch: The place of torch's headers.
        folder: The folder for the headers. The function creates it.
    """
    if compiler.is_clang:
        return []
    modes: dict[str, tuple[list[str], str, str]] = {
        _HOST: (["-O0"], implicit_headers(CPP_HEADERS), f"#define {WITH_PYTHON}\n"),
        "fast": (compiler.fast_flags(), f"#include <{PRELUDE}>\n{implicit_headers(CUDA_HEADERS)}", ""),
        "check": (compiler.checked_flags(), f"#include <{PRELUDE}>\n{implicit_headers(CUDA_HEADERS)}", ""),
        f"fast{_ALONE}": (compiler.fast_flags(), f"#include <{PRELUDE}>\n", ""),
        f"check{_ALONE}": (compiler.checked_flags(), f"#include <{PRELUDE}>\n", ""),
    }
    found = []
    for name, (flags, text, selected) in modes.items():
        selection = folder / f"{name}.select"
        selection.mkdir(parents=True)
        (selection / SELECTION).write_text(selected, encoding="utf-8")
        header = folder / f"{name}.h"
        header.write_text(text, encoding="utf-8")
        places = [INCLUDE, INCLUDE_TORCH / "cuda", selection, LEAN]
        found.append(
            [
                *compiler.command,
                *compiler.common_flags(),
                *flags,
                *(f"-I{place}" for place in places),
                *torch.include_flags,
                "-isystem",
                str(python_include()),
                "-DTORCH_API_INCLUDE_EXTENSION_H",
                *("-x", "c++-header", str(header), "-o", f"{header}.gch"),
            ]
        )
    return found


def descriptors(folder: Path | None) -> list[int]:
    """Returns the descriptors that a compiler must inherit, so that it can open a folder of headers."""
    return [int(folder.name)] if folder is not None and folder.parent == OPEN_FILES else []


def prelude(mode: Mode, folder: Path | None) -> list[str]:
    """Returns the options that put the prelude in front of a unit.

    Args:
        mode: How kernels will run.
        folder: The folder of the headers; None if there is none.
    """
    header = None if folder is None else folder / f"{mode}{_ALONE}.h"
    return ["-include", PRELUDE if header is None or not header.is_file() else str(header)]


def inclusion(unit: Unit, mode: Mode, folder: Path | None, selection: Path) -> list[str]:
    """Returns the options that put a precompiled header in front of a unit; none if it may not begin so.

    Args:
        unit: The unit, which includes torch's headers through their stand-ins.
        mode: How kernels will run.
        folder: The folder of the headers; None if there is none.
        selection: The header that adds what the unit names.
    """
    first = CUDA_HEADERS if unit.is_cuda else CPP_HEADERS
    header = None if folder is None else folder / f"{mode if unit.is_cuda else _HOST}.h"
    # Behind headers of its own, a macro of the author's might change what torch's declare.
    if header is None or not unit.text.startswith(implicit_headers(first)) or not header.is_file():
        return []
    binding = ["-include", str(LEAN / _BINDING)] if WITH_PYTHON in selection.read_text(encoding="utf-8") else []
    return ["-include", str(header), "-include", str(selection), *binding]

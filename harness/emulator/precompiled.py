"""Headers that nearly every translation unit begins with, compiled once beside the runtime.

Reading torch's headers takes most of a build; g++ reads a precompiled header in a fraction of that.
g++ itself checks whether a precompiled header fits a unit's options. If it does not, or if the file
has gone, g++ reads the text of the same name, which includes the same headers.
"""

from __future__ import annotations

from pathlib import Path

from harness.compilation.torch_headers import BINDING, LEAN, SELECTION, WITH_PYTHON, only_binds, selection
from harness.emulator import header_words
from harness.emulator.compiler import INCLUDE, INCLUDE_TORCH, Compiler, Mode, TorchPaths, python_include
from harness.emulator.declarations import DECLARED
from harness.emulator.flags import TORCH_DEFINITIONS
from harness.emulator.processes import run_together
from harness.emulator.sources import CPP_HEADERS, CUDA_HEADERS, PRELUDE, Unit, implicit_headers
from harness.system.processes import OPEN_FILES

_HOST = "host"
_DECLARED = "declared"
#: The folder of precompiled headers beside the runtime's libraries.
HEADERS = "headers"
#: Ends the names of headers that hold the prelude and nothing of torch's.
_ALONE = "_prelude"


def precompile(compiler: Compiler, torch: TorchPaths, scratch: Path) -> Path:
    """Precompiles headers in a new folder, and returns it. Builds do without a header that does not compile.

    Args:
        compiler: The compiler that will use them.
        torch: The place of torch's headers.
        scratch: A private folder.
    """
    folder = scratch / HEADERS
    logs = scratch / "precompiling"
    logs.mkdir()
    commands = _compilers(compiler, torch, folder)
    preprocessed = header_words.preprocessors(compiler, torch, logs) if commands else []
    results = run_together([*commands, *preprocessed], logs)
    for command, finished in zip(commands, results[: len(commands)], strict=True):
        if finished.status != 0:
            Path(command[-1]).with_suffix("").unlink()
    if preprocessed and all(finished.status == 0 for finished in results[len(commands) :]):
        header_words.write(logs, folder)
    return folder


def drop_older_headers(cache_dir: Path) -> None:
    """Removes the precompiled headers of all runtimes but the newest; builds there go on without.

    Args:
        cache_dir: The folder of runtimes.
    """
    older = sorted(cache_dir.glob(f"runtime-*/{HEADERS}"), key=lambda folder: folder.stat().st_mtime)[:-1]
    for file in [file for folder in older for file in folder.glob("*.gch")]:
        file.unlink(missing_ok=True)


def _compilers(compiler: Compiler, torch: TorchPaths, folder: Path) -> list[list[str]]:
    """Writes the headers' texts and returns the commands that precompile them; none for clang.

    Args:
        compiler: The compiler that will use them.
        torch: The place of torch's headers.
        folder: The folder for the headers. The function creates it.
    """
    if compiler.is_clang:
        return []
    modes = {
        _HOST: (["-O0"], implicit_headers(CPP_HEADERS)),
        _DECLARED: (["-O0"], implicit_headers(CPP_HEADERS)),
        "fast": (compiler.fast_flags(), f"#include <{PRELUDE}>\n{implicit_headers(CUDA_HEADERS)}"),
        "check": (compiler.checked_flags(), f"#include <{PRELUDE}>\n{implicit_headers(CUDA_HEADERS)}"),
        f"fast{_ALONE}": (compiler.fast_flags(), f"#include <{PRELUDE}>\n"),
        f"check{_ALONE}": (compiler.checked_flags(), f"#include <{PRELUDE}>\n"),
    }
    found = []
    for name, (flags, text) in modes.items():
        empty = folder / f"{name}.select"
        empty.mkdir(parents=True)
        (empty / SELECTION).touch()
        header = folder / f"{name}.h"
        header.write_text(text, encoding="utf-8")
        stand_ins = [DECLARED] if name == _DECLARED else [INCLUDE_TORCH / "cuda", empty, LEAN]
        found.append(
            [
                *compiler.command,
                *compiler.common_flags(),
                *flags,
                *(f"-I{place}" for place in (INCLUDE, *stand_ins)),
                *torch.include_flags,
                "-isystem",
                str(python_include()),
                "-DTORCH_API_INCLUDE_EXTENSION_H",
                *(() if name in (_HOST, _DECLARED) else TORCH_DEFINITIONS),
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


def declared(folder: Path | None) -> list[str]:
    """Returns the options for a unit that only declares functions and binds them.

    Args:
        folder: The folder of the headers; None if there is none.
    """
    header = None if folder is None else folder / f"{_DECLARED}.h"
    return [f"-I{DECLARED}", *(["-include", str(header)] if header is not None and header.is_file() else [])]


def select(unit: Unit, folder: Path, torch: TorchPaths) -> None:
    """Writes the headers that the stand-ins for torch's headers include for a unit.

    Args:
        unit: The unit.
        folder: The folder for them, which exists. The compiler must search it first.
        torch: The place of torch's headers.
    """
    (folder / SELECTION).write_text(selection(unit.names, torch.root), encoding="utf-8")
    if only_binds(unit.names):
        # pybind11 takes g++ three times as long as all else in such a unit.
        (folder / BINDING).write_text("#include <cuemu/binding.h>\n", encoding="utf-8")


def inclusion(unit: Unit, mode: Mode, folder: Path | None, selected: Path) -> list[str]:
    """Returns the options that put a precompiled header in front of a unit; none if it may not begin so.

    Args:
        unit: The unit, which includes torch's headers through their stand-ins.
        mode: How kernels will run.
        folder: The folder of the headers; None if there is none.
        selected: The folder of the headers that add what the unit names.
    """
    first = CUDA_HEADERS if unit.is_cuda else CPP_HEADERS
    header = None if folder is None else folder / f"{mode if unit.is_cuda else _HOST}.h"
    # Behind headers of its own, a macro of the author's might change what torch's declare.
    if header is None or not unit.text.startswith(implicit_headers(first)) or not header.is_file():
        return []
    names = [SELECTION, BINDING] if WITH_PYTHON in (selected / SELECTION).read_text(encoding="utf-8") else [SELECTION]
    found = [next(path for path in (selected / name, LEAN / name) if path.is_file()) for name in names]
    return ["-include", str(header), *(word for path in found for word in ("-include", str(path)))]

"""Finds the host's C++ compiler and gives the flags for every build of the emulator."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.compilation.cpp_runtime import runtime_flags
from harness.errors import ToolchainError

EMULATOR = Path(__file__).resolve().parent
INCLUDE = EMULATOR / "include"
INCLUDE_TORCH = EMULATOR / "include_torch"
RUNTIME = EMULATOR / "runtime"

INSTALL_HINT = (
    "Install one: Debian/Ubuntu `apt-get install g++`, Fedora `dnf install gcc-c++`, conda-forge `conda install gxx`; "
    "or set CXX to a C++20 compiler."
)
#: How kernels run: for their results alone, or with a check of every access.
Mode = Literal["fast", "check"]
_SANITIZERS = "thread,alignment,bounds,signed-integer-overflow"
_PROBE = b"#if __cplusplus < 202002L\n#error\n#endif\nint main() { return 0; }\n"


@dataclass(frozen=True)
class Compiler:
    """A working C++ compiler.

    Attributes:
        command: The program and the arguments that ``CXX`` puts first.
        is_clang: Whether the compiler takes clang's options instead of g++'s.
        version: The first line of its version output. It is part of every build key.
        link_flags: Links libraries with the C++ runtime that torch uses.
    """

    command: tuple[str, ...]
    is_clang: bool
    version: str
    link_flags: tuple[str, ...] = ()

    def common_flags(self) -> list[str]:
        """Returns the flags of every compilation: language, arithmetic, message format.

        Returns:
            The flags, without optimisation level and include paths.
        """
        flags = ["-std=c++20", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread", "-w"]
        if self.is_clang:
            return [*flags, "-fno-color-diagnostics", "-fno-caret-diagnostics", "-ferror-limit=20"]
        # Without -fno-gnu-unique, two builds of one source in a process would share function-local
        # statics.
        return [
            *flags,
            "-fno-gnu-unique",
            "-fdiagnostics-color=never",
            "-fno-diagnostics-show-caret",
            "-fmax-errors=20",
        ]

    def fast_flags(self) -> list[str]:
        """Returns the flags of a fast build of CUDA source.

        The compiler vectorises loops over threads wherever that changes no result.

        Returns:
            The flags, with the optimisation level.
        """
        # No code reads errno or the processor's exception flags after a kernel, and the values do
        # not depend on them.
        flags = ["-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math"]
        # At -O2 g++ does not vectorise a loop that needs a run-time test. That includes every loop
        # that reads and writes through pointers.
        return flags if self.is_clang else [*flags, "-fvect-cost-model=dynamic"]

    def checked_flags(self) -> list[str]:
        """Returns the flags of a checked build of CUDA source.

        In such a build every access calls the runtime (``runtime/sanitizer.cpp``).

        Returns:
            The flags, with the optimisation level. They need no library at link time.
        """
        # Each access must reach the runtime once, for one element and with its own line. A load
        # must stay where it was written, even before a guard. A callback must return to the line of
        # its access, which a function's last call would not do as a jump.
        kept = ["-fno-tree-vectorize", "-fno-tree-sink", "-fno-optimize-sibling-calls"]
        # The runtime takes most of the time, so a kernel runs as fast as at -O2 and compiles in half of it. Of the
        # debug information only lines and inlined functions are read.
        flags = ["-O1", *kept, "-g1", f"-fsanitize={_SANITIZERS}", "-DCUEMU_CHECKED"]
        options = ("tsan-distinguish-volatile=1", "tsan-instrument-func-entry-exit=0")
        if self.is_clang:
            return [*flags, *(word for option in options for word in ("-mllvm", f"-{option}"))]
        # g++ sees no access in what it writes in place of a call of these with a known size.
        flags += ["-fno-builtin-memset", "-fno-builtin-memcpy", "-fno-builtin-memmove"]
        return [*flags, *(word for option in options for word in ("--param", option))]


def find_compiler() -> Compiler:
    """Finds the compiler that ``CXX`` names, else g++, else clang++.

    Returns:
        A compiler that handles C++20.

    Raises:
        ToolchainError: There is no compiler (the message says how to install one), or it is too old
            (the message has its version).
    """
    return _compiler(os.environ.get("CXX", "").strip(), os.environ.get("PATH", ""))


@functools.cache
def _compiler(wanted: str, path: str) -> Compiler:
    del path  # part of the cache's key; the search below reads the path from the environment
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise ToolchainError(f"CXX={wanted!r} cannot be read as a command ({error}). {INSTALL_HINT}") from error
    if words:
        if shutil.which(words[0]) is None:
            raise ToolchainError(
                f"CXX={wanted!r}: no program {words[0]!r} was found. Correct or unset CXX. {INSTALL_HINT}"
            )
        return _checked(tuple(words))
    for name in ("g++", "clang++"):
        if shutil.which(name) is not None:
            return _checked((name,))
    raise ToolchainError(f"No C++ compiler was found (looked for g++ and clang++). {INSTALL_HINT}")


def _checked(command: tuple[str, ...]) -> Compiler:
    shown = shlex.join(command)
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        about = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        probe = subprocess.run(
            [*command, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"],
            input=_PROBE,
            capture_output=True,
            env=environment,
            check=False,
        )
    except OSError as error:
        raise ToolchainError(f"The C++ compiler {shown!r} does not start: {error}. {INSTALL_HINT}") from error
    text = about.stdout.decode(errors="replace").strip()
    version = text.splitlines()[0] if text else "unknown version"
    if about.returncode != 0 or not text:
        raise ToolchainError(f"{shown!r} did not answer --version, so it is not a C++ compiler. {INSTALL_HINT}")
    if probe.returncode != 0:
        raise ToolchainError(
            f"The C++ compiler {shown!r} ({version}) does not support C++20; use g++ 11 or clang++ 14, or "
            f"later. {INSTALL_HINT}"
        )
    return Compiler(command, "clang" in text, version, runtime_flags(command))


@dataclass(frozen=True)
class TorchPaths:
    """The place of torch's headers and libraries, found without importing torch.

    Attributes:
        version: The version of torch.
        root: The folder of torch's package.
    """

    version: str
    root: Path

    @property
    def include_flags(self) -> list[str]:
        """The include flags for torch's own headers."""
        include = self.root / "include"
        return [f"-I{include}", f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}"]

    @property
    def libraries(self) -> Path:
        """The folder of libtorch."""
        return self.root / "lib"


@functools.cache
def torch_paths() -> TorchPaths:
    """Finds the installed torch.

    Returns:
        Its version and folder.

    Raises:
        ToolchainError: torch is not installed or has no headers.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise ToolchainError("PyTorch is not installed for this Python. Install it with `pip install torch`.")
    root = Path(found.origin).parent
    version_file = root / "version.py"
    if not (root / "include").is_dir() or not version_file.is_file():
        raise ToolchainError(
            f"The PyTorch in {root} has no C++ headers. Install the official wheel with `pip install torch`."
        )
    match = re.search(r"__version__ = '([^']+)'", version_file.read_text(encoding="utf-8"))
    return TorchPaths(match.group(1) if match else "unknown", root)


def python_include() -> Path:
    """Returns the folder of ``Python.h``.

    Raises:
        ToolchainError: Python's headers are not installed.
    """
    folder = Path(sysconfig.get_paths()["include"])
    if not (folder / "Python.h").is_file():
        raise ToolchainError(
            f"Python's C headers are missing ({folder / 'Python.h'}). Debian/Ubuntu: `apt-get install python3-dev`; "
            "Fedora: `dnf install python3-devel`."
        )
    return folder

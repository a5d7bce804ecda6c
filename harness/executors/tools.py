"""The tools that a device needs to build and run solutions, found without importing torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from harness.compilation.housekeeping import hold
from harness.errors import ToolchainError

_GPU_PACKAGES = {"cuda-bindings": "cuda.bindings.driver", "numpy": "numpy"}


#: Solutions with builds in a ``HARNESS_HOME`` from which on headers are precompiled there.
OFTEN = 8


@dataclass(frozen=True)
class Tools:
    """The tools that build and run solutions.

    Attributes:
        libraries: The emulator's runtime libraries and, if they are there, its precompiled
            ``headers`` by name; empty on a GPU.
        compiler: Version line of the compiler that builds solutions.
        held: A file descriptor that keeps ``cache clear`` from removing the libraries while this
            process runs.
    """

    libraries: dict[str, str]
    compiler: str
    held: int | None = None


def tools_for(device: str, home: Path) -> Tools:
    """Returns the tools of a device; builds the emulator's runtime if it is missing.

    Args:
        device: ``cpu`` or ``cuda:N``.
        home: ``HARNESS_HOME``.

    Raises:
        ToolchainError: A compiler or a package is missing, or the runtime cannot be built or
            stored.
    """
    if device == "cpu":
        from harness.emulator.compiler import find_compiler
        from harness.emulator.toolchain import build_runtime

        compiler = find_compiler()
        held = None
        while held is None:  # a `cache clear` may come between building and holding
            libraries = build_runtime(home / "emulator", with_headers=_builds_often(home))
            held = hold(libraries.core)
        paths = {"core": libraries.core, "torch": libraries.torch}
        if libraries.headers.is_dir():  # workers may not read a folder that comes into being after they start
            paths["headers"] = libraries.headers
        return Tools({name: str(path) for name, path in paths.items()}, compiler.version, held)
    for package, module in _GPU_PACKAGES.items():
        if not _is_installed(module):
            raise ToolchainError(
                f"{device}: the package {package}, which passes tensors between processes on a GPU, is "
                'missing; install the packages for a GPU with pip install -e ".[gpu]", or use --device cpu'
            )
    from harness.compilation.nvcc import nvcc_version

    return Tools({}, nvcc_version())


def _builds_often(home: Path) -> bool:
    """Returns whether faster builds will repay the time that it takes to precompile headers."""
    try:
        return len([*(home / "builds").iterdir()]) >= OFTEN
    except OSError:
        return False


def _is_installed(module: str) -> bool:
    """Returns whether a module can be imported; imports only its parent packages."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False

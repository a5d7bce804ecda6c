"""Compiles a CUDA program for the GPU that is there, and for the emulator."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path


def on_gpu(text: str, folder: Path, *options: str) -> ctypes.CDLL:
    """The program, compiled by nvcc.

    Args:
        text: The program.
        folder: Where it is built.
        options: Further options for nvcc.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise SystemExit("there is no nvcc on the PATH")
    (folder / "program.cu").write_text(text, encoding="utf-8")
    library = folder / "gpu.so"
    command = [nvcc, *options, "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(folder / "program.cu")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def on_emulator(text: str, folder: Path, home: Path) -> ctypes.CDLL:
    """The program, on the emulator.

    Args:
        text: The program.
        folder: Where it is built.
        home: Where the emulator's runtime is built: once for a process, which can load only one.
    """
    from harness.emulator.toolchain import build_runtime
    from tests.emulator.native import Emulator, build_kernels

    (folder / "program.cu").write_text(text, encoding="utf-8")
    runtime = build_runtime(home).core
    return Emulator(runtime, build_kernels(folder / "program.cu", runtime, folder)).kernels

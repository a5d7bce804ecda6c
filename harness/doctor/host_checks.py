"""Checks what judging needs anywhere: Python, torch, compilers, confinement, memory and disk."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from harness import package
from harness.doctor.checks import MachineCheck, gib, line_of, program_output
from harness.emulator.compiler import find_compiler, python_include
from harness.errors import ToolchainError
from harness.judge.process.disk import MIN_FREE_BYTES
from harness.judge.process.readable_files import readable_places
from harness.system.memory import available_memory, size_text

_OLDEST_PYTHON = (3, 11)
_OLDEST_TORCH = (2, 9)
#: g++ 12 takes 1.4 GiB to read torch/extension.h of torch 2.13.
_LEAST_MEMORY_BYTES = 3 << 29
_LEAST_DISK_BYTES = 1 << 28


def check_python() -> MachineCheck:
    """Checks this Python's version."""
    good = sys.version_info >= _OLDEST_PYTHON
    remedy = "" if good else "`apt-get install python3.11 python3.11-venv python3.11-dev`, then a new environment"
    return MachineCheck("Python", good, f"{platform.python_version()}, {sys.executable}", remedy, "both")


def check_torch() -> MachineCheck:
    """Checks that torch can be imported, its version, and the CUDA that it was built for."""
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return MachineCheck("torch", False, f"cannot be imported: {line_of(str(error))}", "pip install torch", "both")
    version = tuple(int(number) for number in re.findall(r"\d+", str(torch.__version__))[:2])
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    good = version >= _OLDEST_TORCH
    remedy = "" if good else 'pip install --upgrade "torch>=2.9"'
    return MachineCheck("torch", good, f"{torch.__version__}, {built}", remedy, "both")


def check_confinement() -> MachineCheck:
    """Checks the layers that confine a candidate's process, by a trial in another process."""
    code = (
        "import json, os, pathlib, sys, tempfile\n"
        "from harness.worker.confinement import confine\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "print(json.dumps(confine(folder, json.loads(sys.argv[2]), (os.getppid(),), False)), flush=True)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-c", code, folder, json.dumps(readable_places())]
        said = program_output(arguments, {**os.environ, "PYTHONPATH": str(package.FOLDER.parent)})
    try:
        layers = dict(json.loads(said or ""))
    except ValueError:
        return MachineCheck("confinement", None, "the test did not run", "see docs/security.md", "both")
    missing = {layer: why for layer, why in layers.items() if why}
    held = ", ".join(layer for layer, why in layers.items() if not why) or "no layer"
    if not missing:
        return MachineCheck("confinement", True, held, "", "both")
    without = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
    remedy = "candidates run without these layers; see docs/security.md, or use a container"
    return MachineCheck("confinement", None, f"{held}; missing {without}", remedy, "both")


def check_compiler() -> MachineCheck:
    """Checks the host's C++ compiler."""
    try:
        compiler = find_compiler()
    except ToolchainError as error:
        return MachineCheck("C++ compiler", False, "none that works", line_of(str(error)), "both")
    path = shutil.which(compiler.command[0]) or compiler.command[0]
    return MachineCheck(
        "C++ compiler", True, f"{compiler.version}, {shlex.join((path, *compiler.command[1:]))}", "", "both"
    )


def check_headers() -> MachineCheck:
    """Checks Python's C headers, which every extension that is a Python module includes."""
    try:
        return MachineCheck("Python headers", True, str(python_include()), "", "both")
    except ToolchainError as error:
        return MachineCheck("Python headers", False, "not found", line_of(str(error)), "both")


def check_ninja() -> MachineCheck:
    """Checks ninja, which torch's ``load_inline`` runs.

    It searches the same places as builds on a GPU.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    path = shutil.which("ninja", path=places)
    version = program_output([path, "--version"]) if path else None
    if version is None:
        return MachineCheck(
            "ninja",
            False,
            "not found",
            "`pip install ninja`; torch needs it for builds",
            "cuda",
        )
    return MachineCheck("ninja", True, f"{version.strip()}, {path}", "", "cuda")


def check_package(name: str, module: str) -> MachineCheck:
    """Checks a Python package that passes tensors between processes on a GPU.

    Args:
        name: Name of the package for pip.
        module: Name of its module.
    """
    try:
        importlib.import_module(module)
        version = importlib.metadata.version(name)
    except (ImportError, OSError) as error:
        remedy = f"`pip install {name}`; it passes tensors between processes on a GPU"
        return MachineCheck(name, False, line_of(str(error)), remedy, "cuda")
    return MachineCheck(name, True, version, "", "cuda")


def check_memory() -> MachineCheck:
    """Checks the free main memory for the compiler and the references."""
    free = available_memory()
    remedy = f"end other programs: a compiler needs {gib(_LEAST_MEMORY_BYTES)} to read torch's headers"
    good = free >= _LEAST_MEMORY_BYTES
    return MachineCheck("memory", good, f"{gib(free)} free", "" if good else remedy, "both")


def check_temporary() -> MachineCheck:
    """Checks that the temporary folder has the room that a worker needs."""
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free
    good = free >= MIN_FREE_BYTES
    remedy = f"free {size_text(MIN_FREE_BYTES)} there, or `export TMPDIR=FOLDER` on another disk"
    return MachineCheck("TMPDIR", good, f"{place}, {size_text(free)} free", "" if good else remedy, "both")


def check_disk(home: Path) -> MachineCheck:
    """Checks that the harness's folder can be written and has room.

    If the folder does not exist, the check uses the nearest existing one above it.

    Args:
        home: ``HARNESS_HOME``; the check does not create it.
    """
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    remedy = "`export HARNESS_HOME=FOLDER`, a folder that you can write to, on a disk with space"
    try:
        free = shutil.disk_usage(nearest).free
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return MachineCheck("HARNESS_HOME", False, f"cannot write to {home}: {error.strerror}", remedy, "both")
    good = free >= _LEAST_DISK_BYTES
    return MachineCheck("HARNESS_HOME", good, f"{home}, writable, {gib(free)} free", "" if good else remedy, "both")

"""Finds nvcc without importing torch."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from harness.errors import ToolchainError

USUAL_PLACE = Path("/usr/local/cuda")
INSTALL_NVCC = (
    "install the CUDA toolkit (and set CUDA_HOME if it is not in /usr/local/cuda), or nvcc from PyPI: pip "
    "install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl (CUDA 13; for another version, install "
    "its toolkit)"
)


def cuda_home() -> Path | None:
    """Returns the CUDA toolkit's folder, the one that holds ``bin/nvcc``; None if there is none.

    The function searches ``CUDA_HOME`` and ``CUDA_PATH``, the place of ``nvcc`` on the path,
    ``/usr/local/cuda``, and the packages of PyPI (``nvidia-cuda-nvcc``).
    """
    places = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = shutil.which("nvcc")
    if on_path:
        places.append(Path(on_path).resolve().parent.parent)
    places.append(USUAL_PLACE)
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    places += [*sorted(packages.glob("cu[0-9]*"), reverse=True), packages / "cuda_nvcc"]
    found = [place for place in places if (place / "bin" / "nvcc").is_file()]
    # A wrapper in /usr/local/bin is an nvcc without a toolkit around it. A folder with headers
    # comes first.
    return next((place for place in found if (place / "include" / "cuda_runtime.h").is_file()), next(iter(found), None))


def missing_nvcc() -> str:
    """Returns the message for a user who has no nvcc."""
    return f"nvcc, which compiles CUDA source for the GPU, was not found; {INSTALL_NVCC}"


@functools.cache
def nvcc_release() -> tuple[str, str]:
    """Returns nvcc's full version, such as ``13.0.88``, and the reason why there is none.

    One of the two is empty.
    """
    try:
        told = re.search(r"V(\d[\d.]*)", nvcc_version())
    except ToolchainError as error:
        return "", str(error)
    return told[1] if told else "unknown", ""


def nvcc_version() -> str:
    """Returns nvcc's version line.

    Raises:
        ToolchainError: There is no nvcc, or it does not run.
    """
    home = cuda_home()
    if home is None:
        raise ToolchainError(missing_nvcc())
    command = [str(home / "bin" / "nvcc"), "--version"]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolchainError(f"{command[0]} does not run: {error}; {INSTALL_NVCC}") from None
    return next((line for line in finished.stdout.splitlines() if "release" in line), finished.stdout.strip())

"""The judge's side of confinement: what a worker must be able to read, and the judge's own memory kept from it."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import sys
from pathlib import Path

import harness
from harness.build.nvcc import cuda_home

_PR_SET_DUMPABLE = 4


def hide_memory() -> str:
    """Have the kernel keep this process's memory from others of its user (Linux); why it cannot, empty where it does.

    It can then not be debugged or profiled from outside either, and leaves no core dump.
    """
    if sys.platform != "linux":
        return "needs Linux"
    failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return os.strerror(ctypes.get_errno()) if failed else ""


def readable_places() -> list[str]:
    """What a worker reads besides the system's folders and its own: Python, its packages, this package, compilers."""
    compiler = shutil.which((shlex.split(os.environ.get("CXX", "")) or ["g++"])[0])
    home = cuda_home()
    places = [
        *(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix),
        *(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")),
        str(Path(harness.__file__).resolve().parent),
        *([str(Path(compiler).resolve().parent.parent)] if compiler else []),
        *([str(home)] if home else []),
    ]
    resolved = dict.fromkeys(Path(place).resolve() for place in places)
    return [str(place) for place in resolved if place != Path(place.anchor)]  # never everything there is

"""Versions and processor, for records."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from harness import __version__


def describe(compiler: str) -> dict[str, str]:
    """The software and the machine that a record was made with.

    Args:
        compiler: Version line of the compiler that builds solutions.
    """
    return {
        "harness": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "compiler": compiler,
    }


def describe_gpu() -> dict[str, str]:
    """The current GPU: name, memory, compute capability, driver's CUDA."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": str(properties.name),
        "gpu_memory_gib": f"{properties.total_memory / 2**30:.1f}",
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": str(torch.version.cuda),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()

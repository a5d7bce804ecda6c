"""Versions and processor, for records; torch is imported where it is asked about."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from harness import package
from harness.device.devices import driver_version

#: Folders of the package that no verdict depends on.
_NO_PART_IN_VERDICTS = {"commands", "report", "rendering", "skeletons", "profiling", "bundled", "__pycache__"}


def describe(compiler: str) -> dict[str, str]:
    """The software and the machine that a record was made with.

    Args:
        compiler: Version line of the compiler that builds solutions.
    """
    import torch

    return {
        "harness": package.VERSION,
        "harness_code": code_digest(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "compiler": compiler,
    }


def code_digest() -> str:
    """The beginning of a sha256 of the code that verdicts depend on.

    A changed judge is another judge, whatever its version says.
    """
    digest = hashlib.sha256()
    for path in sorted(package.FOLDER.rglob("*")):
        parts = path.relative_to(package.FOLDER).parts
        if not path.is_file() or _NO_PART_IN_VERDICTS & set(parts) or any(part.startswith(".") for part in parts):
            continue
        digest.update(f"{'/'.join(parts)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def describe_gpu() -> dict[str, str]:
    """The current GPU: name, memory, compute capability, torch's CUDA, and the driver where the kernel tells."""
    import torch

    driver = driver_version()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": str(properties.name),
        "gpu_memory_gib": f"{properties.total_memory / 2**30:.1f}",
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": str(torch.version.cuda),
        **({} if driver is None else {"driver": driver}),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()

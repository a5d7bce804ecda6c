"""Describes software and hardware for records; it imports torch only on demand."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from pathlib import Path

from harness import package
from harness.device.devices import driver_version
from harness.device.kernel_packages import describe_packages

#: Folders of the package that cannot affect a verdict.
_NO_PART_IN_VERDICTS = {
    "commands", "report", "rendering", "skeletons", "profiling", "doctor", "answers", "bundled", "tuning",
    "__pycache__",
}  # fmt: skip


def describe(compiler: str) -> dict[str, str]:
    """Describes the software and the machine of an evaluation.

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
        "kernel_packages": describe_packages(),
    }


@functools.cache
def code_digest() -> str:
    """Returns the first 16 hex digits of a sha256 over the code that verdicts depend on.

    Changed code may judge differently even if the version is the same. The digest is that of the
    first call, because a process goes on with the code that it has loaded.
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
    """Describes the current GPU: name, memory, compute capability, torch's CUDA and driver."""
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

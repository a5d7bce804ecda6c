"""Chooses the device for an evaluation."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import torch


def guess(wanted: str) -> str:
    """Guesses the device that ``--device`` means, without importing torch: ``cpu`` or ``cuda:N``.

    Raises:
        UsageError: The text names no device.
    """
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", wanted)
    if match is None:
        raise UsageError(f"--device {wanted!r}: it must be auto, cpu, cuda, cuda:N, cuda:N,M or all")
    if wanted == "cpu" or (wanted == "auto" and not Path("/dev/nvidiactl").exists()):
        return "cpu"
    return f"cuda:{match[1] or 0}"


def choose(wanted: str) -> torch.device:
    """Returns the device that ``--device`` means and makes a GPU the current one.

    Args:
        wanted: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: The text is none of these.
        DeviceError: There is no such GPU.
    """
    import torch

    likely = guess(wanted)
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    index = int(likely.partition(":")[2] or 0)
    if not torch.cuda.is_available():
        build = "has no CUDA" if torch.version.cuda is None else f"is built for CUDA {torch.version.cuda}"
        raise DeviceError(
            f"--device {wanted}: torch finds no GPU (this torch {torch.__version__} {build}); "
            "use --device cpu, or install a CUDA build of torch and a driver"
        )
    if index >= torch.cuda.device_count():
        raise DeviceError(f"--device {wanted}: this machine has {torch.cuda.device_count()} GPUs, numbered from 0")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def several(wanted: str, lanes: int) -> list[str]:
    """Returns the devices that ``--device`` and ``--lanes`` mean, as names for ``choose``.

    With several lanes, the result contains the CPU once for each lane.

    Args:
        wanted: A name for ``choose``, ``all`` for all GPUs, or some of them: ``cuda:0,2``.
        lanes: Number of candidates that the CPU judges in parallel.

    Raises:
        UsageError: The text names no device, or a GPU would get more than one lane.
        DeviceError: There is no GPU.
    """
    if wanted == "all":
        found = [f"cuda:{index}" for index in range(_gpus())]
        if not found:
            choose("cuda")
    elif re.fullmatch(r"cuda:\d+(,\d+)+", wanted):
        found = list(dict.fromkeys(f"cuda:{int(index)}" for index in wanted.removeprefix("cuda:").split(",")))
    else:
        found = [wanted]
    if lanes == 1:
        return found
    if found != ["cpu"] and guess(found[0]) != "cpu":
        raise UsageError(
            "--lanes: a GPU has one lane, because candidates that run at once would slow each other down; leave it out"
        )
    return ["cpu"] * lanes


def _gpus() -> int:
    """Returns the number of GPUs that the driver shows this process, in a moment; importing torch takes seconds."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return 0
    except (OSError, AttributeError):  # no driver, or one under another name
        import torch

        return torch.cuda.device_count()
    return count.value


def capability(name: str) -> tuple[int, int] | None:
    """Returns the compute capability of ``cuda:N``, or None for ``cpu``."""
    if name == "cpu":
        return None
    import torch

    return torch.cuda.get_device_capability(torch.device(name))


def check_device(name: str) -> None:
    """Verifies that a GPU still computes; for the CPU it does nothing.

    Raises:
        DeviceError: The GPU fails or computes wrong results.
    """
    if name == "cpu":
        return
    import torch

    device = torch.device(name)
    try:
        total = int(torch.ones(1 << 20, dtype=torch.int32, device=device).sum())
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise DeviceError(f"{device} no longer works after a candidate failed on it: {error}") from None
    if total != 1 << 20:
        raise DeviceError(f"{device} computes wrong sums after a candidate failed on it; restart or replace it")


def driver_version() -> str | None:
    """Returns the version of NVIDIA's kernel module (Linux), or None if it is unknown."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)*\b", text)
    return match[0] if match else None

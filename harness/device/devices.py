"""Which device an evaluation runs on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import DeviceError, UsageError

if TYPE_CHECKING:
    import torch


def guess(wanted: str) -> str:
    """What ``--device`` most likely means, told without importing torch: ``cpu`` or ``cuda:N``.

    Raises:
        UsageError: It is no device.
    """
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", wanted)
    if match is None:
        raise UsageError(f"--device {wanted!r}: it must be auto, cpu, cuda, cuda:N, cuda:N,M or all")
    if wanted == "cpu" or (wanted == "auto" and not Path("/dev/nvidiactl").exists()):
        return "cpu"
    return f"cuda:{match[1] or 0}"


def choose(wanted: str) -> torch.device:
    """The device that ``--device`` means.

    Args:
        wanted: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: It is none of these.
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
        raise DeviceError(f"--device {wanted}: there are {torch.cuda.device_count()} GPUs, counted from 0")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def several(wanted: str, lanes: int) -> list[str]:
    """The devices that ``--device`` and ``--lanes`` mean, as ``choose`` knows them; the CPU once for each lane.

    Args:
        wanted: As for ``choose``, or ``all`` GPUs, or some of them: ``cuda:0,2``.
        lanes: How many candidates are judged side by side on the CPU.

    Raises:
        UsageError: It is no device, or a GPU is to have more than one lane.
        DeviceError: There is no GPU.
    """
    if wanted == "all":
        import torch

        found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
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
            "--lanes: a GPU has one lane, since candidates that run side by side slow each other; leave it out"
        )
    return ["cpu"] * lanes


def capability(name: str) -> tuple[int, int] | None:
    """The compute capability of ``cuda:N``; None of ``cpu``."""
    if name == "cpu":
        return None
    import torch

    return torch.cuda.get_device_capability(torch.device(name))


def check_device(name: str) -> None:
    """Verify that a GPU still computes; nothing on the CPU.

    Raises:
        DeviceError: It does not.
    """
    if name == "cpu":
        return
    import torch

    device = torch.device(name)
    try:
        total = int(torch.ones(1 << 20, dtype=torch.int32, device=device).sum())
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        raise DeviceError(f"{device} does not work any more after a candidate failed on it: {error}") from None
    if total != 1 << 20:
        raise DeviceError(f"{device} computes wrong sums after a candidate failed on it; restart or replace it")


def driver_version() -> str | None:
    """Version of NVIDIA's kernel module (Linux); None where it does not tell."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)*\b", text)
    return match[0] if match else None

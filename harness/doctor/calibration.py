"""Measures the ceilings of a GPU for ``doctor --calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.doctor.host_checks import check_torch
from harness.errors import ToolchainError, UsageError

if TYPE_CHECKING:
    from harness.timing.ceilings import Ceilings


def calibrate(wanted: str, home: Path) -> Ceilings:
    """Measures the ceilings of a GPU, which should be otherwise idle, and saves them.

    Args:
        wanted: The device: ``auto``, ``cuda`` or ``cuda:N``.
        home: ``HARNESS_HOME``.

    Raises:
        UsageError: The device is none of these, or means the CPU.
        ToolchainError: Torch is missing or too old.
        DeviceError: There is no such GPU, or the measurement failed.
        OSError: ``HARNESS_HOME`` cannot be written.
    """
    installed = check_torch()
    if not installed.ok:
        raise ToolchainError(f"doctor --calibrate needs torch: {installed.found}; {installed.remedy}")
    from harness.device import devices
    from harness.device.environment import describe_gpu
    from harness.timing import ceilings

    device = devices.choose(wanted)
    if device.type != "cuda":
        raise UsageError(
            f"doctor --calibrate measures a GPU's peak rates, but --device {wanted} selects the CPU emulator "
            "here, which is never timed; name a GPU with --device cuda:N"
        )
    measured = ceilings.measure(device)
    ceilings.save(home, describe_gpu(), measured)
    return measured

"""Traces one call of a candidate: which kernels it launches, and which of torch's operators it calls."""

from __future__ import annotations

from harness.wire.commands import Backward
from harness.wire.replies import Launched, Traced
from harness.worker import profiling
from harness.worker.candidate import Instance
from harness.worker.platforms import Platform
from harness.worker.tally import BACKWARD, FORWARD, Tally


def traced(instance: Instance, platform: Platform, tally: Tally, backward: Backward | None) -> Traced:
    """Runs an instance's calls again and reports what they launch.

    The emulator has counted the judged calls. On a GPU one more call runs, in the way that the judge
    times.

    Args:
        instance: The instance.
        platform: Its platform.
        tally: Has the work of the judged calls on the emulator; gets the operators on a GPU.
        backward: The backward; None for the forward alone.
    """
    emulated = platform.device.type == "cpu"
    instance.set_state()  # copies by the harness, not by the candidate
    platform.synchronize()
    inference = [] if emulated else platform.launched(instance.step(None))
    forward = platform.launched(instance.call)
    behind: list[Launched] | None = []
    if backward:
        behind = platform.launched(lambda: instance.gradients(backward))
    if not emulated:
        _count_operators(instance, tally, backward)
    return Traced(
        forward is not None,
        forward=tuple(forward or ()),
        backward=tuple(behind or ()),
        inference=tuple(inference or ()),
        operators=tally.operators,
        work=tally.work if emulated else None,
        refused=(),
    )


def _count_operators(instance: Instance, tally: Tally, backward: Backward | None) -> None:
    """Runs the calls again under torch's profiler, which counts the operators on a GPU."""
    tally.add(FORWARD, profiling.operators(instance.call), 0)
    if backward:
        tally.add(BACKWARD, profiling.operators(lambda: instance.gradients(backward)), 0)

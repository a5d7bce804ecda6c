"""Timing a call by CUDA events. What it uses of torch is taken at import, before any candidate could replace it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

_perf_counter = time.perf_counter
_Event = torch.cuda.Event
_record = torch.cuda.Event.record
_elapsed_time = torch.cuda.Event.elapsed_time
_synchronize = torch.cuda.synchronize
_sleep = torch.cuda._sleep
#: Of a GPU; those that are slower wait a little longer.
CYCLES_IN_A_MICROSECOND = 2000


def timed(call: Callable[[], Any], device: torch.device, head_start_us: int = 0) -> tuple[float, float]:
    """Run a call between two events on the current stream, the device idle before.

    Args:
        call: The call.
        device: Where.
        head_start_us: Start event and call wait behind a kernel that spins for so many microseconds, by which time
            (part of) the call is launched: what launching takes is not seen.

    Returns:
        Milliseconds between the events, and from the second one to a third, which is recorded once the host has seen
        the whole device idle: waking up, and what other streams still had to do. On the CPU, by the system's clock.
    """
    if device.type == "cpu":
        begun = _perf_counter()
        call()
        return (_perf_counter() - begun) * 1e3, 0.0
    start, end, idle = (_Event(enable_timing=True) for _ in range(3))  # type: ignore[no-untyped-call]
    _synchronize(device)
    if head_start_us:
        _sleep(head_start_us * CYCLES_IN_A_MICROSECOND)  # type: ignore[no-untyped-call]
    _record(start)
    result = call()
    _record(end)
    _synchronize(device)
    _record(idle)
    _synchronize(device)
    del result
    return float(_elapsed_time(start, end)), float(_elapsed_time(end, idle))

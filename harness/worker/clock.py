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
#: Cycles that a queued call waits behind, about 2 ms: longer than its launches take.
QUEUE_CYCLES = 4_000_000


def timed(call: Callable[[], Any], device: torch.device, is_queued: bool = False) -> float:
    """Run a call between two events, the whole device synchronised before and after it.

    The end is recorded after a device-wide synchronisation, so that work on other streams counts too. A queued call
    has no such synchronisation: it waits behind a kernel that spins while everything is launched, so that neither
    launching nor waiting counts, and neither does work on other streams.

    Returns:
        Milliseconds between the events; on the CPU, by the system's clock.
    """
    if device.type == "cpu":
        begun = _perf_counter()
        call()
        return (_perf_counter() - begun) * 1e3
    start, end = (_Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    _synchronize(device)
    if is_queued:
        _sleep(QUEUE_CYCLES)  # type: ignore[no-untyped-call]
    _record(start)
    result = call()
    if not is_queued:
        _synchronize(device)
    _record(end)
    _synchronize(device)
    del result
    return float(_elapsed_time(start, end))

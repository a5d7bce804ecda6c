"""Timing a call by CUDA events. What it uses of torch is taken at import, before any candidate could replace it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Event = torch.cuda.Event
_record = torch.cuda.Event.record
_elapsed_time = torch.cuda.Event.elapsed_time
_synchronize = torch.cuda.synchronize


def timed(call: Callable[[], Any], device: torch.device) -> float:
    """Run a call between two events, the whole device synchronised before and after it.

    The end is recorded after a device-wide synchronisation, so that work on other streams counts too.

    Returns:
        Milliseconds between the events.
    """
    start, end = (_Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    _synchronize(device)
    _record(start)
    result = call()
    _synchronize(device)
    _record(end)
    _synchronize(device)
    del result
    return float(_elapsed_time(start, end))

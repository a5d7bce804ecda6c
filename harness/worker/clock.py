"""Timing a call by CUDA events. What it uses of torch is taken at import, before any candidate could replace it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Event = torch.cuda.Event
_synchronize = torch.cuda.synchronize


def timed(call: Callable[[], Any], device: torch.device) -> float:
    """Run a call between two events, the whole device synchronised before and after.

    Returns:
        Milliseconds between the events on the current stream.
    """
    start, end = (_Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    _synchronize(device)
    start.record()
    result = call()
    end.record()
    _synchronize(device)
    del result
    return float(start.elapsed_time(end))

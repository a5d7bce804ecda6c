"""Times a call by CUDA events.

The module binds torch's functions at import, before any candidate could replace them.
"""

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
#: Clock rate of a GPU. On a slower one the call waits a little longer.
CYCLES_IN_A_MICROSECOND = 2000


def timed(call: Callable[[], Any], device: torch.device, head_start_us: int = 0) -> tuple[float, float]:
    """Times a call between two events on the current stream, starting from an idle device.

    Args:
        call: The call.
        device: The device on which the call runs.
        head_start_us: Microseconds that a kernel spins before the start event and the call. The
            host launches the call, or a part of it, during that time, so launch overhead does not
            count.

    Returns:
        Two times in milliseconds. The first runs between the two events. The second runs from the
        end event to a third one, which the host records once it has seen the whole device idle. It
        includes waking up and the remaining work of other streams. On the CPU the first comes from
        the system's clock and the second is 0.
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

"""Does a candidate return the same bits every time? It runs several times on the same inputs, and runs are compared."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.judge.case_context import CaseContext
from harness.judge.exchange.exchange import same_bytes
from harness.judge.inputs.draws import Draw
from harness.judge.process.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.trials.trial import THREAD_ORDERS, results_of
from harness.system.text import shortened
from harness.wire.cuda_memory import DeviceMemoryError

#: How often it runs, the first run included.
RUNS = 4
MAX_WORDS = 500
#: Elements that are compared at a time: in float64 they take memory.
PIECE = 1 << 24


def spread(context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw) -> dict[str, Any]:
    """How far results on the same inputs lie apart; what goes wrong here changes nothing else.

    Args:
        context: The case's context.
        worker: The candidate's.
        clock: The seconds that it may use.
        draw: What it is given.

    Returns:
        ``runs``; and by name ``tensors``, those that some run returned with other bits than the first: in how many runs
        they are ``differing``, and the largest difference in the ``l2`` norm, relative to the first run's, and in the
        maximum norm, ``max``, relative to its RMS. Or ``failure``, why that is not known.
    """
    try:
        first = results_of(context, worker, clock, draw, 0, THREAD_ORDERS[0])
        found: dict[str, dict[str, Any]] = {}
        for _ in range(RUNS - 1):
            again = results_of(context, worker, clock, draw, 0, THREAD_ORDERS[0])
            for name, tensor in first.items():
                other = again.get(name)
                if other is not None and same_bytes(tensor, other):
                    continue
                l2, largest = (math.inf, math.inf) if other is None else difference(tensor, other)
                known = found.setdefault(name, {"differing": 0, "l2": 0.0, "max": 0.0})
                found[name] = {
                    "differing": known["differing"] + 1,
                    "l2": max(known["l2"], l2),
                    "max": max(known["max"], largest),
                }
    except CandidateStopped as stop:
        return {"failure": shortened(f"it ended with {stop.status}: {stop.message}", MAX_WORDS)}
    except (torch.OutOfMemoryError, DeviceMemoryError):
        return {"failure": "the device's memory does not do for results of two runs"}
    return {"runs": RUNS, "tensors": found}


def difference(first: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """The difference of two tensors of one form in the L2 norm, relative, and in the maximum norm, over the RMS.

    Infinite where one is not finite and the other has another value there, and where the first is zero.
    """
    squares, largest, scale = 0.0, 0.0, 0.0
    pieces = zip(torch.split(first.reshape(-1), PIECE), torch.split(other.reshape(-1), PIECE), strict=True)
    for one, another in pieces:
        mine, theirs = one.to(torch.float64), another.to(torch.float64)
        apart = torch.where((mine == theirs) | (mine.isnan() & theirs.isnan()), 0.0, (mine - theirs).abs())
        apart = torch.where(apart.isnan(), math.inf, apart)
        squares += float(apart.square().sum())
        largest = max(largest, float(apart.max()) if apart.numel() else 0.0)
        scale += float(torch.where(mine.isfinite(), mine, 0.0).square().sum())
    if not scale:
        return (math.inf, math.inf) if largest else (0.0, 0.0)
    return math.sqrt(squares / scale), largest / math.sqrt(scale / first.numel())

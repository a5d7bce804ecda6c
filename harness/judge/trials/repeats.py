"""Checks whether a candidate returns the same bits in several runs on the same inputs."""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.judge.case_context import CaseContext
from harness.judge.exchange.exchange import same_bytes
from harness.judge.inputs.draws import Draw
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.trials.trial import THREAD_ORDERS, results_of
from harness.system.text import shortened
from harness.wire.cuda_memory import DeviceMemoryError

#: Number of runs, including the first.
RUNS = 4
MAX_WORDS = 500
#: Number of elements compared at a time, which limits the memory for float64.
PIECE = 1 << 24


def spread(context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw) -> dict[str, Any]:
    """Measure how far results on the same inputs differ; a failure here changes nothing else.

    Args:
        context: The case's context.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use.
        draw: The draw to give the candidate.

    Returns:
        ``runs``, and ``tensors`` by name: those whose bits differed from the first run's. Each has
        the number of ``differing`` runs, and the largest difference in two norms: ``l2`` relative
        to the first run's, and ``max`` relative to its RMS. If the runs failed, ``failure`` says
        why instead.
    """
    try:
        first = results_of(context, worker, clock, draw, trial=0, thread_order=THREAD_ORDERS[0], fill=0)
        found: dict[str, dict[str, Any]] = {}
        for run in range(1, RUNS):
            again = results_of(context, worker, clock, draw, trial=0, thread_order=THREAD_ORDERS[0], fill=run)
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
        return {"failure": "not enough device memory for the results of two runs"}
    return {"runs": RUNS, "tensors": found}


def difference(first: torch.Tensor, other: torch.Tensor) -> tuple[float, float]:
    """Return the relative L2 difference of two tensors, and the largest over the first's RMS.

    Both are infinite where one tensor is not finite and the other differs there, or where the first
    is zero.
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

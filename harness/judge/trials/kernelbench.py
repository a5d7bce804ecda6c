"""Asks what KernelBench's evaluator would say of a candidate (``evaluate --preset kernelbench``).

Its values are those of ``src/kernelbench/eval.py`` in March 2026: five draws of the problem's
inputs, one model as its constructor leaves it, and ``torch.allclose`` with eager's outputs. The
runtime is the mean of a forward's CUDA events behind a flushed L2 cache.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.judge.case_context import CaseContext
from harness.judge.inputs.draws import derive_seed, draw, draw_inputs
from harness.judge.process.time_limits import Clock, Limits
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.trials.further_draws import DrawSource
from harness.judge.trials.trial import forward_seed, received_outputs
from harness.records.baselines import EAGER
from harness.records.record import EvaluationRecord, Status
from harness.timing.scores import samples
from harness.wire.state import CONSTRUCTION_SEED

TRIALS = 5
#: ``atol`` and ``rtol`` by the output's dtype. Before 2026 it was 1e-2 for all.
TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
TOLERANCE = 1e-4
#: Elements that are compared at once, since a comparison makes several copies of them.
PIECE = 1 << 26
#: Statuses that say the same in KernelBench, if the candidate came no further.
_INCORRECT = frozenset(
    {
        *(Status.BUILD_ERROR, Status.LOAD_ERROR, Status.RUNTIME_ERROR),
        *(Status.CRASHED, Status.TIMEOUT, Status.WRONG_OUTPUT),
    }
)


def outputs_verdict(
    context: CaseContext,
    worker: WorkerHandle,
    limits: Limits,
    source: DrawSource,
) -> dict[str, Any]:
    """Compares a candidate's outputs as KernelBench does.

    As there, both models are made under one seed, and the candidate keeps what its constructor
    makes of it. The worker must have made its instance just before.

    Args:
        context: The case's context.
        worker: The candidate's worker.
        limits: The seconds that the candidate may use for this.
        source: The source of draws.

    Returns:
        ``correct``, the ``tolerance``, the smallest tolerance that would do as ``error`` (None if
        none would), and the number of ``trials``.

    Raises:
        CandidateStopped: The candidate failed, or its outputs have another form.
        ProblemError: The reference does not run.
    """
    clock, seed = Clock(*limits), derive_seed(context.secret, "kernelbench")
    context = replace(context, names={}, buffers=())
    first = draw(source.problem, source.module, source.args, CONSTRUCTION_SEED, as_constructed=True)
    first.model.to(source.device)
    is_correct, error, tolerance = True, 0.0, 0.0
    for trial in range(TRIALS):
        inputs = draw_inputs(source.problem, source.module, derive_seed(str(seed), trial), source.device)
        drawn = replace(first, inputs=inputs)
        received = received_outputs(context, worker, clock, drawn)
        seed_of_forward = forward_seed(context, 0)
        expected = context.reference.run(drawn, seed_of_forward, None, None, differentiate=False).outputs
        for mine, theirs in zip(received, expected, strict=True):
            own_tolerance = TOLERANCES.get(theirs.dtype, TOLERANCE)
            is_close, needed = compared(theirs, mine, own_tolerance)
            is_correct = is_correct and is_close
            error, tolerance = max(error, needed), max(tolerance, own_tolerance)
        del received, expected  # the next trial's take their place in memory
    return {
        "correct": is_correct,
        "tolerance": tolerance,
        "error": error if error < float("inf") else None,
        "trials": TRIALS,
    }


def compared(expected: torch.Tensor, received: torch.Tensor, tolerance: float) -> tuple[bool, float]:
    """Returns whether ``torch.allclose`` holds under a tolerance, and the least one that would do."""
    is_close, needed = True, 0.0
    for one, other in zip(*(torch.split(each.reshape(-1), PIECE) for each in (expected, received)), strict=True):
        is_close = is_close and torch.allclose(one, other, rtol=tolerance, atol=tolerance)
        needed = max(needed, needed_tolerance(one, other))
    return is_close, needed


def needed_tolerance(expected: torch.Tensor, received: torch.Tensor) -> float:
    """Returns the least ``atol`` = ``rtol`` under which ``torch.allclose(expected, received)`` holds."""
    if not expected.numel():
        return 0.0
    expected, received = expected.double(), received.double()
    shares = (expected - received).abs() / (1 + received.abs())
    shares = torch.where(expected == received, 0.0, shares.nan_to_num(float("inf")))
    return float(shares.max())


def recorded(found: dict[str, Any], record: EvaluationRecord) -> dict[str, Any]:
    """Returns the record's ``kernelbench``: the outputs' verdict, with the speed of what was timed.

    Args:
        found: The outputs' verdict; empty if the candidate did not come so far.
        record: The finished record.
    """
    if not found:
        return {"correct": False} if record.status in _INCORRECT else {}
    mine, eager = (samples(record, side, "forward") for side in ("candidate", EAGER))
    if not (found["correct"] and mine and eager):
        return found
    return {**found, **_speed(mine, eager)}


def _speed(mine: Sequence[float], eager: Sequence[float]) -> dict[str, float]:
    runtime, of_eager = statistics.fmean(mine), statistics.fmean(eager)
    return {"runtime_ms": runtime, "eager_ms": of_eager, "speedup": of_eager / runtime}

"""Turns verdicts into rewards for training.

A reward counts only what is certain: the lower end of the speedup's interval, a certified clock and
an own kernel. Whatever the device or the harness caused is masked, not scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.entries import Answer
from harness.errors import AnswerError
from harness.executors.result_cache import may_be_the_machine_s
from harness.judge.evidence.ownership import LOW_SHARE
from harness.records.record import EvaluationRecord, Status

#: The speedup that the lower end of the interval must exceed before it earns anything.
MARGIN = 1.05
#: The reward where no kernel ran: no code, a failed build, a cheat, a pass that is torch's work.
NO_KERNEL = -1.0
#: The reward of a solution that ran and failed.
FAILED = -0.5
#: Statuses that the device or the harness may have caused.
MASKED = frozenset({Status.HARNESS_ERROR, Status.OUT_OF_MEMORY, Status.UNSUPPORTED, Status.INTERPRETED})
_NOT_BUILT = frozenset({Status.BUILD_ERROR, Status.LOAD_ERROR, Status.CHEATED})


def reward(judged: Answer | Sequence[EvaluationRecord]) -> float | None:
    """Returns the reward of a candidate, the lowest over its cases; None if it is masked.

    A pass with an own kernel earns ``max(0, 1 - 1.05 / lower)``, where ``lower`` is the lower end
    of the 95 % interval of the speedup over eager: 0 on the emulator, and below 1. A solution that
    ran and failed earns -0.5. No code, a failed build or import, a cheat, and a pass that is torch's
    work earn -1. A failure on one case counts even if another case is masked. A pass is masked if
    the share of its own kernels is unknown. A failure is masked if other programs or a failing disk
    may have caused it. Every error of an answer but missing code is masked, such as a missed
    deadline.

    Args:
        judged: The answer for a candidate, or its records, one for each case.
    """
    if isinstance(judged, Answer):
        if judged.error is not None:
            return NO_KERNEL if isinstance(judged.error, AnswerError) else None
        judged = judged.records
    rewards = [_of_one(record) for record in judged]
    known = [one for one in rewards if one is not None]
    lowest = min(known, default=None)
    if lowest is None or (lowest >= 0 and len(known) < len(rewards)):
        return None
    return lowest


def _of_one(record: EvaluationRecord) -> float | None:
    if record.status in MASKED or may_be_the_machine_s(record):
        return None
    if record.status is not Status.PASSED:
        return NO_KERNEL if record.status in _NOT_BUILT else FAILED
    if record.own_share is None:
        return None
    if record.own_share < LOW_SHARE:
        return NO_KERNEL
    lower = certain_speedup(record)
    return 0.0 if lower is None else max(0.0, 1.0 - MARGIN / lower)


def certain_speedup(record: EvaluationRecord) -> float | None:
    """Returns the lower end of a certified speedup's interval; None if none was measured.

    The direction is a forward with its backward, or the forward if gradients were not judged.
    """
    for direction in ("forward_backward", "forward"):
        if direction in record.speedup_interval:
            lower = record.speedup_interval[direction][0]
            is_certain = direction in record.certified and math.isfinite(lower) and lower > 0
            return lower if is_certain else None
    return None

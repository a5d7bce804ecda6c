"""Counts the mistakes of earlier answers, to any problem, which prompts turn into rules.

Only names from ``MISTAKES`` come out: what a candidate wrote cannot get into the prompts of later runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from harness.records.record import ERROR, EvaluationRecord, Status
from harness.records.rules import INPUT_MUTATION, NO_OWN_KERNEL

#: Failed records that are looked at, the newest ones, and mistakes that a prompt names, the most frequent ones.
MOST_RECORDS, MOST_MISTAKES = 500, 8
#: A gradient that is wrong only where every element of ``grad_output`` is the same one.
EXPANDED = "expanded"
#: What counts as a mistake: a finding's kind, an integrity rule, or a status.
MISTAKES = (
    *("race", "out-of-bounds", "uninitialised", "misaligned", "divergence", "deadlock", "mask", "barrier", "launch"),
    *("overflow", NO_OWN_KERNEL, INPUT_MUTATION, EXPANDED),
    *(Status.BUILD_ERROR, Status.LOAD_ERROR, Status.NO_GRADIENT, Status.WRONG_GRADIENT, Status.WRONG_OUTPUT),
    *(Status.RUNTIME_ERROR, Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.CRASHED),
)
#: Those that only a task with gradients allows.
OF_GRADIENTS = (EXPANDED, Status.NO_GRADIENT, Status.WRONG_GRADIENT)


def mistakes_in(records: Iterable[EvaluationRecord], *, forward_only: bool = False) -> dict[str, int]:
    """Counts the failed solutions behind each of the most frequent mistakes, the most frequent first.

    A solution counts once, however many of its cases failed by the same mistake.

    Args:
        records: Records of any problem.
        forward_only: Whether to leave out mistakes in gradients.
    """
    left_out = OF_GRADIENTS if forward_only else ()
    found = ((record.digest, name) for record in records if (name := _mistake(record)) is not None)
    made = {(digest, name) for digest, name in found if name not in left_out}
    return dict(Counter(name for _, name in sorted(made)).most_common(MOST_MISTAKES))


def _mistake(record: EvaluationRecord) -> str | None:
    errors = [finding.kind for finding in record.findings if finding.level == ERROR]
    wrong = {report.cotangent for report in record.gradients if not report.ok}
    is_expanded = record.status is Status.WRONG_GRADIENT and wrong == {"ones"}
    names = (*errors, record.rule, EXPANDED if is_expanded else None, record.status)
    return next((name for name in names if name in MISTAKES), None)

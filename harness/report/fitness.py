"""Describes the problems that cannot tell a right answer from a wrong one."""

from __future__ import annotations

from collections.abc import Sequence

from harness.records.record import EvaluationRecord
from harness.system.text import one_line


def unfit_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Says once for each problem and case why it cannot tell a right answer from a wrong one."""
    lines = (
        f"unfit: {record.problem} {record.case} cannot tell a right answer from a wrong one, so a verdict "
        f"proves little: {'; '.join(record.unfit)}. Change the inputs, then run `python -m harness validate "
        f"{record.problem_path}`."
        for record in records
        if record.unfit
    )
    return list(dict.fromkeys(map(one_line, lines)))

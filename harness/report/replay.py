"""Describes the result of a replay for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.records.record import EvaluationRecord
from harness.system.text import one_line, printable

_MOST_DIFFERENCES, _MOST_CHARACTERS = 40, 100
_GRADIENT = "gradient of "


def replay_lines(record: EvaluationRecord) -> Iterator[str]:
    """Describes a replay's outcome, the differences, and how deterministic the results are."""
    told = record.replay
    why = f": {told['why']}" if told.get("why") else ""
    outcome = str(told.get("outcome", ""))
    if outcome == "identical":
        why = (
            ": status, findings and figures, and every bit of the results"
            if record.digests
            else ": status and findings"
        )
    yield printable(f"replay of {told.get('of')}: {outcome}{why}")
    for name, one in told.get("environment", {}).items():
        yield one_line(f"  {name}: {one['then']} then, {one['now']} now")
    differences = told.get("differences", [])
    for one in differences[:_MOST_DIFFERENCES]:
        yield one_line(f"  {one['field']}: {_short(one['then'])} then, {_short(one['now'])} now")
    if len(differences) > _MOST_DIFFERENCES:
        yield f"  and {len(differences) - _MOST_DIFFERENCES} more, see --json"
    yield from (f"  {one_line(line)}" for line in _spread_lines(record, told.get("spread", {})))


def _spread_lines(record: EvaluationRecord, spread: dict[str, Any]) -> Iterator[str]:
    if "failure" in spread:
        yield f"could not compare runs on the same inputs: {spread['failure']}"
    elif spread and not spread.get("tensors"):
        yield f"{spread.get('runs', 0)} runs on the same inputs agree bit for bit"
    elif spread:
        yield f"not deterministic: {spread.get('runs', 0)} runs on the same inputs differ"
    reports = {report.name: report for report in record.outputs}
    reports |= {_GRADIENT + report.name: report for report in record.gradients}
    for name, one in spread.get("tensors", {}).items():
        report = reports.get(name)
        l2, largest = (None, None) if report is None else (report.l2_budget, report.max_budget)
        yield (
            f"  {name}: {one['differing']} of {spread.get('runs', 1) - 1} differ from the first, relative L2 up to "
            f"{float(one['l2']):.1e}{_beside(l2)}, largest difference {float(one['max']):.1e} of the RMS"
            f"{_beside(largest)}"
        )


def _beside(budget: float | None) -> str:
    return "" if budget is None else f" (budget {budget:.1e})"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."

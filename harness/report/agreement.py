"""Compares two runs of a benchmark: do their 95 % intervals overlap?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from harness.records.json_values import plain
from harness.records.record import EvaluationRecord
from harness.report.benchmark_rows import (
    Figure,
    baseline_names,
    case_label,
    figure_text,
    latency_of,
    solution_label,
    speedup_of,
)
from harness.report.markdown_tables import escaped, table
from harness.report.scores import percent
from harness.report.speed_comparison import DIRECTIONS, WORDS

#: Share of intervals that must overlap so that two runs agree.
ACCEPTANCE = 0.95


class Agreement(NamedTuple):
    """One figure of two runs.

    Attributes:
        problem: Name of the problem.
        solution: Name of the solution.
        case: Name of the case.
        direction: ``forward`` or ``forward_backward``.
        quantity: ``candidate`` for its latency in milliseconds, ``over NAME`` for the speedup over
            a baseline.
        before: Figure of the first run, or None.
        after: Figure of the second run, or None.
    """

    problem: str
    solution: str
    case: str
    direction: str
    quantity: str
    before: Figure | None
    after: Figure | None

    @property
    def overlaps(self) -> bool | None:
        """True if the 95 % intervals overlap; None if one of them is unknown."""
        match (self.before, self.after):
            case (
                Figure(low=float(low), high=float(high)),
                Figure(low=float(other_low), high=float(other_high)),
            ):
                return low <= other_high and other_low <= high
        return None


def overlap(before: Sequence[EvaluationRecord], after: Sequence[EvaluationRecord]) -> list[Agreement]:
    """Pairs the figures of two runs: the candidates' latencies and speedups over each baseline.

    If a run contains a name twice, the last record counts. The result includes figures that only
    one run has.
    """
    first, second = _figures(before), _figures(after)
    return [Agreement(*key, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]


def agreement_as_json(rows: Sequence[Agreement]) -> list[dict[str, Any]]:
    """Returns the compared figures as JSON objects."""
    cleaned: list[dict[str, Any]] = plain([{**row._asdict(), "overlaps": row.overlaps} for row in rows])
    return cleaned


def markdown_agreement(rows: Sequence[Agreement]) -> str:
    """Formats how many figures of two runs agree: a sentence for each quantity, then a table."""
    lines = ["## Do two runs agree?", ""]
    for quantity in dict.fromkeys(row.quantity for row in rows):
        verdicts = [row.overlaps for row in rows if row.quantity == quantity]
        known = [verdict for verdict in verdicts if verdict is not None]
        what = "latency of candidates" if quantity == "candidate" else f"speedup {quantity}"
        words = f"{what}: the 95 % intervals of {sum(known)} out of {len(known)} figures overlap"
        if known:
            accepted = sum(known) >= ACCEPTANCE * len(known)
            words += f" ({percent(sum(known) / len(known))}; the requirement is {percent(ACCEPTANCE)}: "
            words += "accepted)" if accepted else "not accepted)"
        if missing := len(verdicts) - len(known):
            words += f"; {missing} cannot be compared, because a run has no interval there"
        lines.append(f"- {escaped(words)}")
    words_of = {True: "yes", False: "NO", None: "-"}
    cells = [
        (
            solution_label(row.problem, row.solution),
            row.case,
            WORDS[row.direction],
            "candidate ms" if row.quantity == "candidate" else row.quantity,
            *(figure_text(figure, "" if row.quantity == "candidate" else "x") for figure in (row.before, row.after)),
            words_of[row.overlaps],
        )
        for row in rows
    ]
    lines += [""] if rows else ["There is nothing to compare.", ""]
    header = ("solution", "case", "direction", "what", "before", "after", "overlap")
    return "\n".join([*lines, *table(header, cells)]) + "\n"


def _figures(records: Iterable[EvaluationRecord]) -> dict[tuple[str, str, str, str, str], Figure | None]:
    """Returns the figures of a run by problem, solution, case, direction and quantity."""
    found: dict[tuple[str, str, str, str, str], Figure | None] = {}
    for record in records:
        names = baseline_names([record])
        for direction in DIRECTIONS:
            key = (record.problem, record.solution, case_label(record), direction)
            if (latency := latency_of(record, "candidate", direction)) is not None:
                found[(*key, "candidate")] = latency
            for name in names:
                if (speedup := speedup_of(record, name, direction)) is not None:
                    found[(*key, f"over {name}")] = speedup
    return found

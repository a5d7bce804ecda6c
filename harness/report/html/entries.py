"""Groups records into what a report has a page for: a candidate's text on a problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.records.record import EvaluationRecord, Status
from harness.report.table import worst_of
from harness.timing.sample_scores import DIRECTIONS, SampleResult
from harness.timing.scores import interval, number
from harness.timing.statistics import Interval

#: Kinds of status: names for the style sheet, and signs that tell them apart without colour.
PASSED, WRONG, CHEATED, FAILED = "passed", "wrong", "cheated", "failed"
SIGNS = {PASSED: "✓", WRONG: "✗", CHEATED: "!", FAILED: "■"}
_KINDS = {
    Status.PASSED: PASSED,
    Status.WRONG_OUTPUT: WRONG,
    Status.WRONG_GRADIENT: WRONG,
    Status.CHEATED: CHEATED,
}


class Group(NamedTuple):
    """Records that are shown together.

    Attributes:
        name: Name of the run or file; empty if there is only one group.
        records: Its records, the oldest first.
    """

    name: str
    records: list[EvaluationRecord]


@dataclass(frozen=True)
class Entry:
    """A candidate on a problem, with its newest record of each case.

    Attributes:
        key: Name of its page.
        group: Name of its group.
        model: Name of the model that wrote it; empty if it is not known.
        problem: Name of the problem.
        level: The folder of the problem's file.
        records: A record for each case.
        earlier: Digests of earlier texts of this solution, the newest last.
    """

    key: str
    group: str
    model: str
    problem: str
    level: str
    records: tuple[EvaluationRecord, ...]
    earlier: tuple[str, ...]

    @property
    def column(self) -> str:
        """Its group and model; empty if there is nothing to tell apart."""
        return " ".join(filter(None, (self.group, self.model)))

    @property
    def worst(self) -> EvaluationRecord:
        """The record of the case that decides."""
        return worst_of(self.records)

    @property
    def kind(self) -> str:
        """The kind of its status."""
        return kind_of(self.worst.status)

    @property
    def share(self) -> float | None:
        """The largest error over its budget."""
        shares = [one.share for record in self.records for one in (*record.outputs, *record.gradients)]
        return max((share for share in shares if share is not None), default=None)

    @property
    def own_share(self) -> float | None:
        """The least share of own kernels."""
        return min((one.own_share for one in self.records if one.own_share is not None), default=None)

    def milliseconds(self, direction: str) -> float | None:
        """Returns the median latency of its slowest case, in milliseconds."""
        found = [number(getattr(record, f"{direction}_ms")) for record in self.records]
        return max((one for one in found if one is not None), default=None)

    def speedup(self, direction: str) -> Interval | None:
        """Returns the speedup over eager of the case where it is lowest, if it passed and was timed."""
        if self.worst.status is not Status.PASSED:
            return None
        found = []
        for record in self.records:
            bounds = record.speedup_interval.get(direction)
            if (record.speedup or {}).get(direction) is not None and bounds is not None:
                found.append(interval(((record.speedup or {})[direction], *bounds)))
        return min((one for one in found if one is not None), key=lambda one: one[0], default=None)

    @property
    def best(self) -> Interval | None:
        """The speedup of the direction that counts: forward with backward if it was timed."""
        return next((one for name in reversed(DIRECTIONS) if (one := self.speedup(name)) is not None), None)


def kind_of(status: Status) -> str:
    """Returns the kind of a status."""
    return _KINDS.get(status, FAILED)


def entries_of(groups: Sequence[Group], samples: Sequence[Sequence[SampleResult]]) -> list[Entry]:
    """Returns the candidates of all groups, by problem.

    Args:
        groups: The groups.
        samples: The samples of each (see ``sample_scores.results_of``).
    """
    found: list[Entry] = []
    for group, results in zip(groups, samples, strict=True):
        texts: dict[tuple[str, str], dict[str, None]] = {}
        for record in group.records:
            texts.setdefault((record.solution, record.problem_path), {})[record.digest] = None
        for result in results:
            last = result.records[-1]
            earlier = [one for one in texts[last.solution, last.problem_path] if one != last.digest]
            found.append(
                Entry(
                    key="",
                    group=group.name,
                    model=result.model,
                    problem=result.problem,
                    level=result.level,
                    records=tuple(result.records),
                    earlier=tuple(earlier),
                )
            )
    found.sort(key=lambda one: (one.level, _natural(one.problem), one.column, one.worst.solution))
    return [replace(entry, key=f"c{place}") for place, entry in enumerate(found)]


def counts_of(entries: Iterable[Entry]) -> dict[str, int]:
    """Counts candidates by status, the most frequent first; ``PASSED`` leads."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.worst.status] = counts.get(entry.worst.status, 0) + 1
    return dict(sorted(counts.items(), key=lambda one: (one[0] != Status.PASSED, -one[1], one[0])))


def _natural(name: str) -> tuple[int, str]:
    """Sorts KernelBench's names by their number."""
    head = name.split("_", 1)[0]
    return (int(head) if head.isdecimal() and len(head) < 10 else -1, name)

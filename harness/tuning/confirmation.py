"""Confirms a search's result beside the default setting, on cases that the search did not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.record import EvaluationRecord, Status
from harness.report.speed_comparison import direction_of, speed_ratios
from harness.timing.statistics import Interval, SpeedVerdict, ratio_of_medians
from harness.tuning.finals import MOST_ROUNDS

#: Judges the result and the default on these cases: in full if the flag is true, else again for their
#: times. Returns the records of either by case.
JudgeBoth = Callable[[Sequence[str], bool], tuple[Mapping[str, EvaluationRecord], Mapping[str, EvaluationRecord]]]


@dataclass(frozen=True)
class Confirmation:
    """The result of a search on one case.

    Attributes:
        case: The case.
        verdict: The result's speed over the default's, as a ``SpeedVerdict``. If the result failed or
            has no time, its status. If only the default did, ``FASTER``.
        lead: The speedup over the default; None where one of the two has no time.
        records: Names of the records of both.
    """

    case: str
    verdict: str
    lead: Interval | None
    records: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True if the result passed, and is not slower than the default."""
        return self.verdict in (SpeedVerdict.SAME, SpeedVerdict.FASTER, SpeedVerdict.UNCLEAR)


def confirm(cases: Sequence[str], judge: JudgeBoth) -> list[Confirmation]:
    """Compares a search's result with the default until every case is clear, at most ``MOST_ROUNDS`` more times.

    Raises:
        HarnessError: The judge has ended.
    """
    ratios: dict[str, tuple[list[float], list[float]]] = {case: ([], []) for case in cases}
    names: dict[str, tuple[str, ...]] = dict.fromkeys(cases, ())
    found: dict[str, Confirmation] = {}
    for number in range(1 + MOST_ROUNDS):
        unclear = [case for case in cases if case not in found or found[case].verdict is SpeedVerdict.UNCLEAR]
        if not unclear:
            break
        mine, default = judge(unclear, number == 0)
        for case in unclear:
            names[case] += tuple(both[case].record for both in (mine, default) if case in both)
            times = [_ratios(both.get(case)) for both in (mine, default)]
            for kept, new in zip(ratios[case], times, strict=True):
                kept.extend(new)
            found[case] = _confirmation(case, mine.get(case), times, ratios[case], names[case])
    return list(found.values())


def _confirmation(
    case: str,
    mine: EvaluationRecord | None,
    new: Sequence[Sequence[float]],
    ratios: tuple[list[float], list[float]],
    names: tuple[str, ...],
) -> Confirmation:
    if mine is None or not new[0]:
        status = Status.HARNESS_ERROR if mine is None else mine.status
        return Confirmation(case, "no time" if status is Status.PASSED else str(status), None, names)
    if not new[1]:
        return Confirmation(case, SpeedVerdict.FASTER, None, names)
    lead = ratio_of_medians(*ratios).widened()
    return Confirmation(case, lead.verdict, lead, names)


def _ratios(record: EvaluationRecord | None) -> list[float]:
    return [] if record is None else speed_ratios(record, direction_of(record))

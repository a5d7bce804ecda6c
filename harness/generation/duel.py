"""Times two attempts by turns, until one is faster than the other beyond noise.

Each measurement is in pairs with eager PyTorch, so a slow or fast phase of the machine affects both
sides alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.records.record import EvaluationRecord
from harness.report.speed_comparison import add_ratios
from harness.timing.statistics import Interval, SpeedVerdict, ratio_of_medians

#: Rounds before a duel ends without a decision.
MOST_ROUNDS = 4


@dataclass(frozen=True)
class Duel:
    """The result of a duel.

    Attributes:
        leads: The first one's speed over the second one's, by case; empty if one of them failed or
            could not be timed.
        seconds: Seconds that the device ran for it.
    """

    leads: Mapping[str, Interval]
    seconds: float

    @property
    def reversed(self) -> Duel:
        """The same duel, from the other one's side."""
        leads = {case: Interval(1 / lead.ratio, 1 / lead.high, 1 / lead.low) for case, lead in self.leads.items()}
        return Duel(leads, self.seconds)

    @property
    def verdict(self) -> SpeedVerdict:
        """The verdict on all cases together: one case beyond noise decides if no other case contradicts."""
        verdicts = {lead.verdict for lead in self.leads.values()} - {SpeedVerdict.SAME}
        if not self.leads or len(verdicts) > 1:
            return SpeedVerdict.UNCLEAR
        return verdicts.pop() if verdicts else SpeedVerdict.SAME


def fought(first: str, second: str, judge: Callable[[str], Sequence[EvaluationRecord]]) -> Duel:
    """Times two sources by turns and returns the result.

    Args:
        first: The source that is thought to be faster.
        second: The other source.
        judge: Judges a source anew and returns its records, one for each case.
    """
    ratios: dict[str, dict[str, list[float]]] = {first: {}, second: {}}
    duel, seconds = Duel({}, 0.0), 0.0
    for number in range(MOST_ROUNDS):
        for source in (first, second) if number % 2 == 0 else (second, first):
            records = judge(source)
            seconds += sum(record.run_s for record in records)
            if not add_ratios(ratios[source], records):
                return Duel({}, seconds)
        leads = {
            case: ratio_of_medians(mine, ratios[second][case]).widened()
            for case, mine in ratios[first].items()
            if case in ratios[second]
        }
        duel = Duel(leads, seconds)
        if duel.verdict is not SpeedVerdict.UNCLEAR:
            break
    return duel

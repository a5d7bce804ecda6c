"""The finals: judges the fastest settings in full, and times them again until the order is beyond noise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.records.record import EvaluationRecord
from harness.report.speed_comparison import add_ratios
from harness.timing.statistics import Interval, SpeedVerdict, ratio_of_medians
from harness.tuning.results import Trial
from harness.tuning.space import Point

#: The most settings in the finals beside the default, and how much slower than the fastest one they may be after a
#: short run.
MOST_FINALISTS, MARGIN = 4, 0.05
#: Rounds of further timing before the finals end without a winner.
MOST_ROUNDS = 5

#: Judges settings and returns the records of each: in full if the flag is true, else again for their times.
JudgeFinalists = Callable[[Sequence[Point], bool], Mapping[Point, Sequence[EvaluationRecord]]]


@dataclass
class Finalist:
    """A setting in the finals.

    Attributes:
        point: The setting.
        records: Names of its records.
        ratios: Paired ratios eager over candidate of all its records, by case.
    """

    point: Point
    records: list[str] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """Time as a share of eager's, the geometric mean over the cases."""
        return 1 / statistics.geometric_mean(statistics.median(one) for one in self.ratios.values())

    def add(self, records: Sequence[EvaluationRecord]) -> bool:
        """Adds the times of records, one a case; returns False if one failed or has no time."""
        self.records += [record.record for record in records]
        return add_ratios(self.ratios, records)


@dataclass(frozen=True)
class Rival:
    """A finalist beside the fastest one.

    Attributes:
        finalist: The finalist.
        leads: The fastest one's speed over this one's, by case; empty for the fastest one itself.
        verdict: What the leads mean for all cases together.
    """

    finalist: Finalist
    leads: Mapping[str, Interval]
    verdict: SpeedVerdict


@dataclass(frozen=True)
class Decision:
    """The result of the finals.

    Attributes:
        winner: The setting to use; None if noise hides which is the fastest, or none passed.
        rivals: The finalists that passed, fastest first.
        failed: The finalists that passed a short run but not all trials, or lost their times.
        rounds: Rounds of further timing.
    """

    winner: Point | None
    rivals: tuple[Rival, ...]
    failed: tuple[Point, ...]
    rounds: int


def finalists(trials: Sequence[Trial], point_of: Callable[[Trial], Point], default: Point | None) -> list[Point]:
    """Returns the settings for the finals, fastest first; none if no trial has a time.

    The default is among them if it has a time, however far behind it is: short runs of calls that take
    half a millisecond showed it 10 % behind a setting that is slower.
    """
    costs = {point_of(one): one.cost for one in trials if one.cost is not None}
    ordered = sorted(costs, key=costs.__getitem__)
    near = [point for point in ordered if costs[point] <= costs[ordered[0]] * (1 + MARGIN)][:MOST_FINALISTS]
    return near if default is None or default in near or default not in costs else [*near, default]


def decide(points: Sequence[Point], judge: JudgeFinalists, differences: Callable[[Point], int]) -> Decision:
    """Judges the finalists until one is ahead of all others beyond noise, or as fast as the nearest.

    Of settings that are as fast as each other, the simplest wins: the one with the fewest
    differences from the defaults.

    Args:
        points: The finalists.
        judge: Judges settings.
        differences: Returns in how many parameters a setting differs from the defaults.

    Raises:
        HarnessError: The judge has ended.
    """
    known = {point: Finalist(point) for point in points}
    failed: list[Point] = []
    open_points, rounds = list(points), 0
    while open_points:
        found = judge(open_points, rounds == 0)
        for point in open_points:
            if not known[point].add(found.get(point, ())):
                failed.append(point)
                del known[point]
        rivals = _ranked(list(known.values()))
        unclear = [one.finalist.point for one in rivals if one.verdict is SpeedVerdict.UNCLEAR]
        open_points = [rivals[0].finalist.point, *unclear] if unclear and rounds < MOST_ROUNDS else []
        rounds += 1
    rivals = _ranked(list(known.values()))
    winner = None
    if rivals and all(one.verdict is not SpeedVerdict.UNCLEAR for one in rivals):
        same = [one.finalist.point for one in rivals if one.verdict is SpeedVerdict.SAME]
        winner = min(same, key=differences)  # the faster one of equally simple ones
    return Decision(winner, tuple(rivals), tuple(failed), max(0, rounds - 1))


def _ranked(entrants: Sequence[Finalist]) -> list[Rival]:
    """Returns the finalists, fastest first, each with its distance to the fastest; that one is ``SAME``."""
    ordered = sorted(entrants, key=lambda one: one.cost)
    rivals = [Rival(one, {}, SpeedVerdict.SAME) for one in ordered[:1]]
    for other in ordered[1:]:
        leads = {
            case: ratio_of_medians(ordered[0].ratios[case], ratios).widened() for case, ratios in other.ratios.items()
        }
        rivals.append(Rival(other, leads, _verdict(leads.values())))
    return rivals


def _verdict(leads: Iterable[Interval]) -> SpeedVerdict:
    """Returns what leads on several cases mean together.

    ``FASTER`` needs one case beyond noise and no case that may be slower; ``SAME`` needs all.
    """
    verdicts = {lead.verdict for lead in leads}
    if verdicts == {SpeedVerdict.SAME}:
        return SpeedVerdict.SAME
    return SpeedVerdict.FASTER if verdicts <= {SpeedVerdict.SAME, SpeedVerdict.FASTER} else SpeedVerdict.UNCLEAR

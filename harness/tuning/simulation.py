"""Replays a recorded search under a strategy, without a device, to compare strategies."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.tuning.results import Recorded
from harness.tuning.space import Point, Space, listed_space
from harness.tuning.strategies import make_strategy

#: A setting this close to the best recorded one, as a share, counts as found.
WITHIN = 0.01


@dataclass(frozen=True)
class Replay:
    """One replayed search.

    Attributes:
        seed: Seed of the strategy.
        evaluations: Settings asked until one was within ``WITHIN`` of the best; None if none was.
        asked: Settings asked until then, at most the budget.
        lead: Best cost found over the best recorded cost; None if every setting asked failed.
    """

    seed: int
    evaluations: int | None
    asked: int
    lead: float | None


def replay(
    space: Space,
    costs: Mapping[Point, float | None],
    strategy: str,
    *,
    seed: int,
    budget: int,
    starts: Sequence[Point] = (),
) -> Replay:
    """Runs a strategy on recorded costs until it finds a setting within ``WITHIN`` of the best.

    Args:
        space: The recorded settings.
        costs: The cost of each setting; None if it failed. At least one has a cost.
        strategy: Name of the strategy.
        seed: Its seed.
        budget: Settings that it may ask for; the starts count.
        starts: Settings that are measured first, as in a search.

    Raises:
        UsageError: There is no such strategy, or its package is not installed.
    """
    best = min(cost for cost in costs.values() if cost is not None)
    chooser = make_strategy(strategy, space, seed)
    first = [point for point in dict.fromkeys(starts) if point in costs]
    found: float | None = None
    asked = 0
    while asked < budget:
        point = first[asked] if asked < len(first) else chooser.ask()
        if point is None:
            break
        asked += 1
        cost = costs[point]
        chooser.tell(point, cost)
        if cost is not None and (found is None or cost < found):
            found = cost
            if cost <= best * (1 + WITHIN):
                return Replay(seed, asked, asked, found / best)
    return Replay(seed, None, asked, None if found is None else found / best)


def replays(recorded: Recorded, strategy: str, budget: int | None, seeds: Sequence[int]) -> list[Replay]:
    """Replays a recorded search under a strategy, once a seed; the default settings come first.

    Args:
        recorded: The search, over the whole space if the result is to mean anything.
        strategy: Name of the strategy.
        budget: Settings that it may ask for; None for all.
        seeds: Its seeds.

    Raises:
        UsageError: No recorded setting has a time, two settings are alike, there is no such
            strategy, or its package is not installed.
    """
    costs = {tuple(one.settings[name] for name in recorded.names): one.cost for one in recorded.trials}
    if len(costs) < len(recorded.trials):
        raise UsageError(f"the recorded search of {recorded.template} has a setting twice; record it again")
    if not any(costs.values()):
        raise UsageError(
            f"no setting of the recorded search of {recorded.template} has a time, as on {recorded.device}; "
            "record a search on a GPU"
        )
    space = listed_space(recorded.names, costs)
    start = tuple(recorded.start[name] for name in recorded.names)
    return [replay(space, costs, strategy, seed=seed, budget=budget or space.size, starts=[start]) for seed in seeds]


def median_evaluations(replays: Sequence[Replay]) -> float | None:
    """Returns the median of the evaluations, where a search that did not arrive counts as endless.

    None if most searches did not arrive.
    """
    middle = statistics.median(float("inf") if one.evaluations is None else one.evaluations for one in replays)
    return None if middle == float("inf") else middle

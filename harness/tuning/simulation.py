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
class Plan:
    """The strategy and the budget of a replay.

    Attributes:
        strategy: Name of the strategy.
        budget: Settings to judge at most; the starts count.
        starts: Settings that are judged first, as in a search.
        ahead: Settings that the strategy has chosen before it knows the result of the one before
            them, as when builds run ahead.
    """

    strategy: str
    budget: int
    starts: tuple[Point, ...] = ()
    ahead: int = 0


@dataclass(frozen=True)
class Replay:
    """One replayed search.

    Attributes:
        seed: Seed of the strategy.
        evaluations: Settings judged until one was within ``WITHIN`` of the best; None if none was.
        judged: Settings judged until then, at most the budget.
        lead: Best cost found over the best recorded cost; None if every setting judged failed.
    """

    seed: int
    evaluations: int | None
    judged: int
    lead: float | None


def replay(space: Space, costs: Mapping[Point, float | None], plan: Plan, seed: int) -> Replay:
    """Runs a strategy on recorded costs until it finds a setting within ``WITHIN`` of the best.

    Args:
        space: The recorded settings.
        costs: The cost of each setting; None if it failed. At least one has a cost.
        plan: What to replay.
        seed: Seed of the strategy.

    Raises:
        UsageError: There is no such strategy, or its package is not installed.
    """
    best = min(cost for cost in costs.values() if cost is not None)
    chooser = make_strategy(plan.strategy, space, seed)
    waiting = [point for point in plan.starts if point in costs]
    asked = set(waiting)
    found: float | None = None
    finished = 0
    while finished < plan.budget:
        while len(waiting) <= plan.ahead and (point := chooser.ask()) is not None:
            if point not in asked:
                asked.add(point)
                waiting.append(point)
        if not waiting:
            break
        first = waiting.pop(0)
        finished += 1
        cost = costs[first]
        chooser.tell(first, cost)
        if cost is not None and (found is None or cost < found):
            found = cost
            if cost <= best * (1 + WITHIN):
                return Replay(seed, finished, finished, found / best)
    return Replay(seed, None, finished, None if found is None else found / best)


def replays(
    recorded: Recorded, strategy: str, budget: int | None, seeds: Sequence[int], ahead: int = 0
) -> list[Replay]:
    """Replays a recorded search under a strategy, once a seed; the default settings come first.

    Args:
        recorded: The search, over the whole space if the result is to mean anything.
        strategy: Name of the strategy.
        budget: Settings to judge at most; None for all.
        seeds: Its seeds.
        ahead: As in ``Plan``.

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
    plan = Plan(strategy, budget or space.size, (start,), ahead)
    return [replay(space, costs, plan, seed) for seed in seeds]


def median_evaluations(replays: Sequence[Replay]) -> float | None:
    """Returns the median of the evaluations, where a search that did not arrive counts as endless.

    None if most searches did not arrive.
    """
    middle = statistics.median(float("inf") if one.evaluations is None else one.evaluations for one in replays)
    return None if middle == float("inf") else middle

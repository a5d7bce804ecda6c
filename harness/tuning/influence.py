"""The influence of each parameter among the settings that were timed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.rendering.values import Value
from harness.tuning.results import Trial

#: Timed settings below which the influence says nothing.
FEWEST = 8


@dataclass(frozen=True)
class Influence:
    """The main effect of a parameter.

    Attributes:
        name: The parameter.
        share: Share of the variance of the log time that the parameter alone explains (eta squared),
            over the settings in which it counts.
        effects: Geometric mean of the time of each value's settings over that of all of them.
        settings: Number of settings that this rests on.
    """

    name: str
    share: float
    effects: Mapping[Value, float]
    settings: int


def influences(trials: Sequence[Trial], counts: Callable[[str, Mapping[str, Value]], bool]) -> list[Influence]:
    """Returns the main effects, the largest share first.

    A strategy measures more settings near the best one, so these shares describe what was measured,
    not the whole space.

    Args:
        trials: The trials; those without a cost are left out.
        counts: Returns whether a parameter counts with some settings.
    """
    timed = [one for one in trials if one.cost is not None]
    if len(timed) < FEWEST:
        return []
    found = []
    for name in timed[0].settings:
        groups: dict[Value, list[float]] = {}
        for one in timed:
            if counts(name, one.settings):
                assert one.cost is not None
                groups.setdefault(one.settings[name], []).append(math.log(one.cost))
        if len(groups) > 1:
            found.append(_influence(name, groups))
    return sorted(found, key=lambda one: -one.share)


def _influence(name: str, groups: Mapping[Value, Sequence[float]]) -> Influence:
    logs = [log for group in groups.values() for log in group]
    mean = statistics.fmean(logs)
    total = sum((log - mean) ** 2 for log in logs)
    means = {value: statistics.fmean(group) for value, group in groups.items()}
    between = sum(len(group) * (means[value] - mean) ** 2 for value, group in groups.items())
    effects = {value: math.exp(one - mean) for value, one in means.items()}
    return Influence(name, between / total if total > 0 else 0.0, effects, len(logs))

"""Optuna's samplers as strategies: TPE, CMA-ES, and NSGA-II for two objectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.rendering.values import Value
from harness.report.extras import imported
from harness.tuning.pattern import FAILED_FACTOR
from harness.tuning.space import Point, Space
from harness.tuning.strategies import OF_TWO, RandomSearch

#: Settings of a generation of NSGA-II; a search has some hundred.
POPULATION = 20
#: Settings that a sampler may suggest in a row that are not valid, or were asked before.
MOST_REFUSED = 50


class OptunaSearch:
    """Asks a sampler of Optuna.

    A number is given to Optuna as its position on its axis, and a text as a category; CMA-ES draws
    categories at random. Optuna knows no constraints: the strategy passes over settings that are not
    valid, and draws one at random if the sampler suggests no other.

    Args:
        space: The space.
        seed: Seed of the sampler.
        name: ``tpe``, ``cmaes`` or ``nsga2``.

    Raises:
        UsageError: Optuna, or for ``cmaes`` its package cmaes, is not installed.
    """

    def __init__(self, space: Space, seed: int, name: str):
        try:
            self._optuna = imported("optuna", f"--strategy {name}")
            if name == "cmaes":
                imported("cmaes", f"--strategy {name}")
        except UsageError as error:
            raise UsageError(f'{error}, or pip install "kernel-harness[tune]"') from None
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        samplers = self._optuna.samplers
        made = {"tpe": samplers.TPESampler, "cmaes": samplers.CmaEsSampler, OF_TWO: samplers.NSGAIISampler}
        more = {"population_size": POPULATION} if name == OF_TWO else {}
        self._objectives = 2 if name == OF_TWO else 1
        self._study = self._optuna.create_study(
            sampler=made[name](seed=seed, **more), directions=["minimize"] * self._objectives
        )
        self._space = space
        self._axes = {name: axis for name, axis in zip(space.names, space.axes, strict=True) if len(axis) > 1}
        self._random = RandomSearch(space, seed)
        self._asked: dict[Point, Any] = {}
        self._seen: set[Point] = set()
        self._slowest = self._worst = 1.0

    def ask(self) -> Point | None:
        """Returns the sampler's next valid setting that is new, else one at random."""
        for _ in range(MOST_REFUSED if len(self._seen) < self._space.size else 0):
            trial = self._study.ask(self._distributions())
            point = self._point(trial.params)
            if point in self._space and point not in self._seen:
                self._asked[point] = trial
                self._seen.add(point)
                return point
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        while (drawn := self._random.ask()) is not None:
            if drawn not in self._seen:
                self._seen.add(drawn)
                return drawn
        return None

    def tell(self, point: Point, cost: float | None, other: float | None = None) -> None:
        """Adds a result; a failed setting counts as slower, and worse, than the worst one."""
        self._seen.add(point)
        self._slowest, self._worst = max(self._slowest, cost or 0.0), max(self._worst, other or 0.0)
        is_whole = cost is not None and other is not None
        second = other if is_whole else FAILED_FACTOR * self._worst
        values = [math.log(FAILED_FACTOR * self._slowest if cost is None else cost), second][: self._objectives]
        trial = self._asked.pop(point, None)
        if trial is not None:
            self._study.tell(trial, values)
            return
        settings = self._space.settings(point)
        params = {name: self._coded(name, settings[name]) for name in self._axes}
        self._study.add_trial(
            self._optuna.trial.create_trial(params=params, distributions=self._distributions(), values=values)
        )

    def _distributions(self) -> dict[str, Any]:
        kinds = self._optuna.distributions
        return {
            name: kinds.CategoricalDistribution(axis) if _is_category(axis) else kinds.IntDistribution(0, len(axis) - 1)
            for name, axis in self._axes.items()
        }

    def _coded(self, name: str, value: Any) -> Any:
        return value if _is_category(self._axes[name]) else self._axes[name].index(value)

    def _point(self, params: Mapping[str, Any]) -> Point:
        def value(name: str, axis: tuple[Value, ...]) -> Value:
            if name not in params:
                return axis[0]
            return _category(params[name]) if _is_category(axis) else axis[int(params[name])]

        return tuple(value(name, axis) for name, axis in zip(self._space.names, self._space.axes, strict=True))


def _is_category(axis: Sequence[Value]) -> bool:
    return all(isinstance(value, str | bool) for value in axis)


def _category(value: Any) -> Value:
    assert isinstance(value, str | bool)
    return value

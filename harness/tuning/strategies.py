"""Strategies choose which setting to measure next, and learn from each result.

The search asks a strategy for a setting and tells it the cost. It may ask for several settings before
it tells the first cost, because builds run ahead.
"""

from __future__ import annotations

import random
from typing import Protocol

from harness.errors import UsageError, suggestion
from harness.tuning.space import Point, Space


class Strategy(Protocol):
    """Chooses settings; every setting of the space at most once."""

    def ask(self) -> Point | None:
        """Returns a setting that was neither asked nor told before; None if there is none left."""

    def tell(self, point: Point, cost: float | None, other: float | None = None) -> None:
        """Reports a result.

        Args:
            point: A setting, which this strategy need not have asked for.
            cost: Its cost, where less is better; None if the setting failed or has no time.
            other: Its other objective, where less is better; only a strategy of two objectives looks
                at it.
        """


class Deck:
    """Draws the settings of a space in random order, each once, also from one too large to list.

    Args:
        space: The space.
        seed: Seed of the order.
    """

    def __init__(self, space: Space, seed: int):
        self._space = space
        self._random = random.Random(seed)
        self._drawn = 0
        self._moved: dict[int, int] = {}

    def draw(self) -> Point | None:
        """Returns the next setting; None after the last."""
        if self._drawn == self._space.size:
            return None
        # A Fisher-Yates shuffle that keeps only the numbers that it has moved.
        place = self._random.randrange(self._drawn, self._space.size)
        number = self._moved.get(place, place)
        self._moved[place] = self._moved.pop(self._drawn, self._drawn)
        self._drawn += 1
        return self._space.at(number)


class Exhaustive:
    """Measures every setting, in the order of the space."""

    def __init__(self, space: Space, seed: int):
        self._points = iter(range(space.size))
        self._space = space
        self._seen: set[Point] = set()

    def ask(self) -> Point | None:
        """Returns the next setting."""
        for number in self._points:
            point = self._space.at(number)
            if point not in self._seen:
                self._seen.add(point)
                return point
        return None

    def tell(self, point: Point, cost: float | None, other: float | None = None) -> None:
        """Notes that the setting needs no measurement."""
        self._seen.add(point)


class RandomSearch:
    """Measures settings in random order, each with the same probability."""

    def __init__(self, space: Space, seed: int):
        self._deck = Deck(space, seed)
        self._seen: set[Point] = set()

    def ask(self) -> Point | None:
        """Returns a setting at random."""
        while (point := self._deck.draw()) is not None:
            if point not in self._seen:
                self._seen.add(point)
                return point
        return None

    def tell(self, point: Point, cost: float | None, other: float | None = None) -> None:
        """Notes that the setting needs no measurement."""
        self._seen.add(point)


DEFAULT = "pattern"
#: The strategy of two objectives.
OF_TWO = "nsga2"
STRATEGIES = (DEFAULT, "random", "exhaustive", "tpe", "cmaes", OF_TWO)
#: Those that learn nothing from results.
UNLEARNED = ("random", "exhaustive")


def make_strategy(name: str, space: Space, seed: int) -> Strategy:
    """Returns a strategy by its name.

    Raises:
        UsageError: There is no such strategy, or its package is not installed.
    """
    match name:
        case "pattern":
            from harness.tuning.pattern import PatternSearch

            return PatternSearch(space, seed)
        case "random":
            return RandomSearch(space, seed)
        case "exhaustive":
            return Exhaustive(space, seed)
        case "tpe" | "cmaes" | "nsga2":
            from harness.tuning.optuna_search import OptunaSearch

            return OptunaSearch(space, seed, name)
    raise UsageError(f"no strategy {name!r}.{suggestion(name, STRATEGIES)}")

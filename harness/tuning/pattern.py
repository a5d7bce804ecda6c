"""The default strategy: a pattern search around the best settings, with a learned filter.

A pattern search moves from the best setting to a better neighbour, which differs in one parameter. A
kernel's setting has some fifty neighbours, too many to measure all. A Gaussian process, fitted to
everything measured so far, says how much each is expected to gain, and the search measures the most
promising one. In a small space every setting is a candidate.

Before the first prediction the settings lie far apart (a maximin design: Johnson, Moore and Ylvisaker,
1990), since two values may be fast together that are slow alone.
"""

from __future__ import annotations

import math
import operator
import random

from harness.tuning.gaussian_process import GaussianProcess, Row
from harness.tuning.space import Point, Space
from harness.tuning.strategies import Deck

#: Settings measured before the first prediction, each the one of so many drawn that is farthest from the others.
INITIAL, DEALT = 8, 64
#: The best results to which the process is fitted; its memory and time grow with their square and cube.
MOST_FITTED = 512
#: Settings of a space in which all are candidates.
SMALL = 1024
#: Best settings whose neighbours are candidates.
CENTRES = 4
#: Settings drawn at random among the candidates, and neighbours of neighbours of the best setting.
DRAWN, FURTHER = 16, 48
#: Share of settings that are measured at random, so that no region is ruled out by a wrong prediction.
RANDOM_SHARE = 0.05
#: A failed setting counts as this many times as slow as the slowest one.
FAILED_FACTOR = 2.0


class PatternSearch:
    """Searches around the best settings; see the module.

    Args:
        space: The space.
        seed: Seed of all random choices.
    """

    def __init__(self, space: Space, seed: int):
        self._space = space
        self._random = random.Random(seed)
        self._deck = Deck(space, seed)
        self._seen: dict[Point, None] = {}
        self._costs: dict[Point, float | None] = {}
        self._process = GaussianProcess(len(space.axes), seed)
        self._fitted = 0
        self._neighbours: dict[Point, list[Point]] = {}

    def tell(self, point: Point, cost: float | None, other: float | None = None) -> None:
        """Adds a result."""
        self._seen[point] = None
        self._costs[point] = cost

    def ask(self) -> Point | None:
        """Returns the most promising setting."""
        point = None
        if len(self._seen) < INITIAL or all(cost is None for cost in self._costs.values()):
            point = self._farthest()
        elif self._random.random() >= RANDOM_SHARE:
            point = self._most_promising()
        point = point or self._at_random()
        if point is not None:
            self._seen[point] = None
        return point

    def _farthest(self) -> Point | None:
        """Returns the setting that differs most from the nearest one seen, then from all, of some drawn at random."""
        drawn = (self._space.at(self._random.randrange(self._space.size)) for _ in range(DEALT))
        free = [point for point in drawn if point not in self._seen]

        def apart(point: Point) -> tuple[int, int]:
            differing = [sum(map(operator.ne, point, other)) for other in self._seen]
            return min(differing, default=0), sum(differing)

        return max(free, key=apart, default=None)

    def _at_random(self) -> Point | None:
        while (point := self._deck.draw()) is not None:
            if point not in self._seen:
                return point
        return None

    def _most_promising(self) -> Point | None:
        self._fit()
        candidates = self._candidates()
        if not candidates:
            return None
        gains = self._process.improvements([self._row(point) for point in candidates])
        return candidates[max(range(len(gains)), key=gains.__getitem__)]

    def _candidates(self) -> list[Point]:
        """Returns settings near the best ones, and a few others; none that was asked or told."""
        if self._space.size <= SMALL:
            every = map(self._space.at, range(self._space.size))
            return [point for point in every if point not in self._seen]
        measured = sorted((cost, at, point) for at, (point, cost) in enumerate(self._costs.items()) if cost is not None)
        found: dict[Point, None] = {}
        for _, _, centre in measured[:CENTRES]:
            found.update(dict.fromkeys(self._around(centre)))
        for _ in range(FURTHER):
            near = self._around(measured[0][2])
            if near and (further := self._around(self._random.choice(near))):
                found[self._random.choice(further)] = None
        for _ in range(DRAWN):
            found[self._space.at(self._random.randrange(self._space.size))] = None
        return [point for point in found if point not in self._seen]

    def _around(self, point: Point) -> list[Point]:
        if point not in self._neighbours:
            self._neighbours[point] = self._space.neighbours(point)
        return self._neighbours[point]

    def _fit(self) -> None:
        """Fits the process to nearly all settings; one more of many is not worth fitting it again.

        A setting whose result is not there yet counts with what is predicted for it ("Kriging believer": Ginsbourger,
        Le Riche and Carraro, 2010). So the next one is not chosen for what that one will tell.
        """
        if self._fitted and len(self._seen) < self._fitted + 1 + self._fitted // 25:
            return
        known = [cost for cost in self._costs.values() if cost is not None]
        failed = FAILED_FACTOR * max(known)
        costs = {point: failed if cost is None else cost for point, cost in self._costs.items()}
        best = sorted(costs, key=costs.__getitem__)[:MOST_FITTED]
        rows, targets = [self._row(point) for point in best], [math.log(costs[point]) for point in best]
        self._process.fit(rows, targets)
        if coming := [self._row(point) for point in self._seen if point not in costs]:
            self._process.fit([*rows, *coming], [*targets, *self._process.means(coming)])
        self._fitted = len(self._seen)

    def _row(self, point: Point) -> Row:
        return tuple(float(rank[value]) for rank, value in zip(self._space.ranks, point, strict=True))

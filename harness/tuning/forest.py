"""A random forest of regression trees: the surrogate that predicts costs of settings not yet measured.

Breiman, 2001, "Random Forests". The spread of the trees' predictions stands for their uncertainty
(Hutter, Hoos and Leyton-Brown, 2011, "Sequential Model-Based Optimization for General Algorithm
Configuration").
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Row = tuple[float, ...]


class Prediction(NamedTuple):
    """The mean of the trees' predictions and their standard deviation."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class _Split:
    """An inner node: rows whose feature is at most the bound go left."""

    feature: int
    bound: float
    left: _Split | float
    right: _Split | float


class Forest:
    """A forest that is fitted to rows of features with a target each.

    Args:
        rows: Features; at least one row, all of the same length.
        targets: The target of each row.
        seed: Seed of the bootstrap and of the features at each split.
        trees: Number of trees.
    """

    def __init__(self, rows: Sequence[Row], targets: Sequence[float], seed: int, trees: int = 24):
        draw = random.Random(seed)
        numbers = range(len(rows))
        self._trees = [_grown(rows, targets, draw.choices(numbers, k=len(rows)), draw) for _ in range(trees)]

    def predict(self, row: Row) -> Prediction:
        """Returns the prediction for a row of features."""
        found = [_leaf(tree, row) for tree in self._trees]
        mean = sum(found) / len(found)
        return Prediction(mean, (sum((one - mean) ** 2 for one in found) / len(found)) ** 0.5)


def _leaf(tree: _Split | float, row: Row) -> float:
    while isinstance(tree, _Split):
        tree = tree.left if row[tree.feature] <= tree.bound else tree.right
    return tree


def _grown(rows: Sequence[Row], targets: Sequence[float], members: list[int], draw: random.Random) -> _Split | float:
    """Grows a tree on some rows until each leaf has equal targets or fewer than two different rows."""
    mean = sum(targets[one] for one in members) / len(members)
    if len(members) < 3:
        return mean
    features = range(len(rows[0]))
    best: tuple[float, int, float] | None = None
    for feature in draw.sample(features, k=max(1, (2 * len(features) + 2) // 3)):
        found = _best_bound(rows, targets, members, feature)
        if found is not None and (best is None or found[0] < best[0]):
            best = (found[0], feature, found[1])
    if best is None:
        return mean
    _, feature, bound = best
    left = [one for one in members if rows[one][feature] <= bound]
    right = [one for one in members if rows[one][feature] > bound]
    return _Split(feature, bound, _grown(rows, targets, left, draw), _grown(rows, targets, right, draw))


def _best_bound(
    rows: Sequence[Row], targets: Sequence[float], members: list[int], feature: int
) -> tuple[float, float] | None:
    """Returns the bound of a feature that leaves the least squared error, as (error, bound); None if there is none.

    The error leaves out the sum of all squares, which is the same for every bound.
    """
    sums: dict[float, tuple[float, int]] = {}
    for one in members:
        total, count = sums.get(rows[one][feature], (0.0, 0))
        sums[rows[one][feature]] = (total + targets[one], count + 1)
    values = sorted(sums)
    whole = sum(total for total, _ in sums.values())
    best: tuple[float, float] | None = None
    below, count = 0.0, 0
    for value, following in itertools.pairwise(values):
        below, count = below + sums[value][0], count + sums[value][1]
        error = -(below**2) / count - (whole - below) ** 2 / (len(members) - count)
        if best is None or error < best[0]:
            best = (error, (value + following) / 2)
    return best

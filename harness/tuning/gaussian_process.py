"""A Gaussian process: the surrogate that predicts costs of settings not yet measured.

Rasmussen and Williams, 2006, "Gaussian Processes for Machine Learning": the Matérn kernel (equation
4.17), predictions (2.25, 2.26) and the marginal likelihood (2.30). The length scales and the noise are
not optimised. A sample of them is drawn once, and each fit weights its most likely ones. The expected
improvement is that of Jones, Schonlau and Welch, 1998, "Efficient Global Optimization".
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch

Row = tuple[float, ...]
#: Samples of the length scales and the noise, and how many of them predict together.
SAMPLES, KEPT = 64, 8
#: Bounds of a length scale, in steps of a parameter, and of the noise's variance, as a share.
_LENGTHS, _NOISES = (0.3, 9.0), (1e-4, 1e-1)
#: Elements of all the samples' matrices together, above which fewer samples are fitted.
_MOST_ELEMENTS = 1 << 20


class GaussianProcess:
    """Predicts costs from those that ``fit`` was given.

    Args:
        features: Number of features of a row.
        seed: Seed of the sample.
    """

    def __init__(self, features: int, seed: int):
        drawn = random.Random(seed)
        self._lengths = _tensor([[_log_uniform(drawn, _LENGTHS) for _ in range(features)] for _ in range(SAMPLES)])
        self._noises = _tensor([_log_uniform(drawn, _NOISES) for _ in range(SAMPLES)])

    def fit(self, rows: Sequence[Row], targets: Sequence[float]) -> None:
        """Takes results, in place of those before.

        Args:
            rows: Features; at least one row.
            targets: The target of each row.
        """
        given = _tensor(targets)
        self._rows, self._mean = _tensor(rows), given.mean()
        spread = given.std(correction=0)
        self._spread = spread if spread > 0 else torch.ones_like(spread)
        self._least = ((given - self._mean) / self._spread).min()
        count = max(KEPT, min(SAMPLES, _MOST_ELEMENTS // len(rows) ** 2))
        lengths, noises = self._lengths[:count], self._noises[:count]
        covariance = _kernel(self._rows, self._rows, lengths)
        covariance.diagonal(dim1=-2, dim2=-1).add_(noises[:, None])
        factors = torch.linalg.cholesky(covariance)
        scaled = ((given - self._mean) / self._spread)[:, None]
        weights = torch.cholesky_solve(scaled.expand(count, -1, -1), factors)
        fits = -0.5 * (scaled * weights).sum((1, 2)) - factors.diagonal(dim1=-2, dim2=-1).log().sum(1)
        order = fits.argsort(descending=True)
        # The likely ones come first, so that a later fit of fewer samples has them.
        self._lengths[:count], self._noises[:count] = lengths[order], noises[order]
        best = order[:KEPT]
        self._shares = torch.softmax(fits[best], 0)
        self._factors, self._weights = factors[best], weights[best]

    def means(self, rows: Sequence[Row]) -> list[float]:
        """Returns the target that is expected of each row."""
        _, means = self._predicted(rows)
        return [float(one) for one in self._mean + self._spread * (self._shares[:, None] * means).sum(0)]

    def improvements(self, rows: Sequence[Row]) -> list[float]:
        """Returns by how much each row is expected to be below the least target, in their standard deviations."""
        across, means = self._predicted(rows)
        halves = torch.linalg.solve_triangular(self._factors, across.transpose(1, 2), upper=False)
        deviations = (1 - halves.square().sum(1)).clamp_min(1e-12).sqrt()
        ahead = (self._least - means) / deviations
        density = torch.exp(-0.5 * ahead.square()) / math.sqrt(2 * math.pi)
        found = deviations * (ahead * torch.special.ndtr(ahead) + density)
        return [float(one) for one in (self._shares[:, None] * found).sum(0)]

    def _predicted(self, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the covariances with the results, and the scaled means by sample and row."""
        across = _kernel(_tensor(rows), self._rows, self._lengths[:KEPT])
        return across, (across @ self._weights)[..., 0]


def _kernel(rows: torch.Tensor, others: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Returns the Matérn covariances with smoothness 5/2, shape (samples, rows, others)."""
    first, second = (one[None] / lengths[:, None] for one in (rows, others))
    distance = math.sqrt(5) * torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")
    return (1 + distance + distance.square() / 3) * torch.exp(-distance)


def _log_uniform(drawn: random.Random, bounds: tuple[float, float]) -> float:
    low, high = map(math.log, bounds)
    return math.exp(drawn.uniform(low, high))


def _tensor(values: Sequence[float] | Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)

"""Medians and spreads of raw samples. Milliseconds throughout; nothing is rounded here."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

RESAMPLES = 2000


@dataclass(frozen=True)
class Latency:
    """One side's latency in one direction.

    Attributes:
        median_ms: Median of the samples.
        low_ms: First quartile.
        high_ms: Third quartile.
        window_ms: Median of the judge's own clock around the same calls, messages included: an upper bound.
        samples_ms: The raw samples, in the order they were taken.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    window_ms: float
    samples_ms: tuple[float, ...]


def latency(samples_ms: Sequence[float], windows_ms: Sequence[float]) -> Latency:
    """Median and quartiles of samples.

    Raises:
        ValueError: There are fewer than two samples.
    """
    if len(samples_ms) < 2:
        raise ValueError("a latency needs at least two samples")
    low, median, high = statistics.quantiles(samples_ms, n=4, method="inclusive")
    return Latency(median, low, high, statistics.median(windows_ms), tuple(samples_ms))


def relative_error_of_median(samples: Sequence[float]) -> float:
    """How far the median of positive samples may be off, as a share of it: one standard error.

    For normal noise of spread s that is ``sqrt(pi / 2) * s / sqrt(n)`` (Kendall and Stuart, The Advanced Theory of
    Statistics, vol. 1); s is taken from the quartiles, which outliers do not move.

    Raises:
        ValueError: There are fewer than two samples.
    """
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    spread = (high - low) / (2 * statistics.NormalDist().inv_cdf(0.75))
    return math.sqrt(math.pi / 2 / len(samples)) * spread / median


def speedup(candidate_ms: Sequence[float], baseline_ms: Sequence[float]) -> float:
    """Median of the paired ratios baseline / candidate; above 1 the candidate is faster.

    Raises:
        ValueError: The series differ in length or are empty.
    """
    ratios = [theirs / mine for mine, theirs in zip(candidate_ms, baseline_ms, strict=True)]
    if not ratios:
        raise ValueError("a speedup needs at least one pair")
    return statistics.median(ratios)


class Interval(NamedTuple):
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def is_decided(self) -> bool:
        """Whether the first is faster by more than noise: the interval lies above 1."""
        return self.low > 1


def ratio_of_medians(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Interval:
    """Median of the first samples over median of the second, with a percentile bootstrap interval.

    Both are resampled independently (Efron, 1979, "Bootstrap Methods: Another Look at the Jackknife").

    Args:
        first: Positive samples, at least two.
        second: The same.
        seed: Seed of the resampling; the same samples give the same interval.

    Raises:
        ValueError: A side has fewer than two samples.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError("an interval needs at least two samples on either side")
    choose = random.Random(seed)
    ratios = sorted(
        statistics.median(choose.choices(first, k=len(first)))
        / statistics.median(choose.choices(second, k=len(second)))
        for _ in range(RESAMPLES)
    )
    tail = round(RESAMPLES * 0.025)
    return Interval(statistics.median(first) / statistics.median(second), ratios[tail], ratios[-1 - tail])

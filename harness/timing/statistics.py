"""Computes medians and intervals of raw samples, in milliseconds and without rounding."""

from __future__ import annotations

import enum
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

RESAMPLES = 2000
#: Share that a 95 % interval leaves out on either side.
TAIL = 0.025
#: Difference between medians of the same calls in different processes, as a share. A series cannot
#: show it: it depends on memory placement and on the device's temperature. It was measured
#: (docs/design/decisions.md), and every interval is widened by it.
PROCESS_SPREAD = 0.001
#: Ratios of speeds this close to 1 count as the same.
SAMENESS = 0.01


@dataclass(frozen=True)
class Latency:
    """The latency of one side in one direction.

    Attributes:
        median_ms: Median of the samples.
        low_ms: First quartile.
        high_ms: Third quartile.
        window_ms: Median of the judge's own clock around the same calls, including messages; an
            upper bound.
        samples_ms: Raw samples, in the order of measurement.
        behind_ms: For each sample, the time from the call's end until the host had seen the whole
            device idle.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    window_ms: float
    samples_ms: tuple[float, ...]
    behind_ms: tuple[float, ...] = ()


def latency(samples_ms: Sequence[float], windows_ms: Sequence[float], behind_ms: Sequence[float] = ()) -> Latency:
    """Computes the median and the quartiles of samples.

    Raises:
        ValueError: There are fewer than two samples.
    """
    if len(samples_ms) < 2:
        raise ValueError("a latency needs at least two samples")
    low, median, high = statistics.quantiles(samples_ms, n=4, method="inclusive")
    return Latency(
        median,
        low_ms=low,
        high_ms=high,
        window_ms=statistics.median(windows_ms),
        samples_ms=tuple(samples_ms),
        behind_ms=tuple(behind_ms),
    )


def paired_ratios(candidate_ms: Sequence[float], baseline_ms: Sequence[float]) -> list[float]:
    """Returns the speedup of each pair, baseline over candidate; above 1 the candidate is faster.

    Raises:
        ValueError: The series differ in length.
    """
    return [theirs / mine for mine, theirs in zip(candidate_ms, baseline_ms, strict=True)]


class SpeedVerdict(enum.StrEnum):
    """The meaning of a ratio's interval. The first member that applies counts."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    UNCLEAR = "UNCLEAR"


class Interval(NamedTuple):
    """A ratio with its 95 % interval."""

    ratio: float
    low: float
    high: float

    @property
    def uncertainty(self) -> float:
        """Half the interval's width, as a share of the ratio."""
        return (self.high - self.low) / 2 / self.ratio

    def widened(self, share: float = PROCESS_SPREAD) -> Interval:
        """Returns the interval with both bounds moved outwards by a share of them."""
        return Interval(self.ratio, self.low * (1 - share), self.high * (1 + share))

    @property
    def verdict(self) -> SpeedVerdict:
        """The verdict on the interval.

        It is ``SAME`` if the interval lies within ``SAMENESS`` of 1, ``FASTER`` or ``SLOWER`` if it
        excludes 1, else ``UNCLEAR``.
        """
        if self.low >= 1 - SAMENESS and self.high <= 1 + SAMENESS:
            return SpeedVerdict.SAME
        if self.low > 1:
            return SpeedVerdict.FASTER
        return SpeedVerdict.SLOWER if self.high < 1 else SpeedVerdict.UNCLEAR


def measured(samples: Sequence[float]) -> Interval:
    """Estimates the median in another process: ``median_interval``, widened by ``PROCESS_SPREAD``.

    Args:
        samples: Positive latencies or paired ratios, at least two.

    Raises:
        ValueError: There are fewer than two samples.
    """
    return median_interval(samples).widened()


def median_interval(samples: Sequence[float]) -> Interval:
    """Returns the median of positive samples with its exact percentile bootstrap interval.

    The function draws nothing. A resample's median is a sample (for an odd number) or the mean of
    two. The probability of each follows from binomial probabilities (Maritz and Jarrett, 1978, "A
    Note on Estimating the Variance of the Sample Median"). The interval leaves out 2.5 % of that
    distribution on either side.

    Args:
        samples: Paired ratios, at least two.

    Raises:
        ValueError: There are fewer than two samples.
    """
    if len(samples) < 2:
        raise ValueError("an interval needs at least two samples")
    ordered = sorted(samples)
    medians = _medians_of_resamples(ordered) if len(ordered) % 2 == 0 else _middles_of_resamples(ordered)
    low, high = (_quantile(sorted(medians), share) for share in (TAIL, 1 - TAIL))
    return Interval(statistics.median(ordered), low, high)


def _quantile(values: Sequence[tuple[float, float]], share: float) -> float:
    """Returns a quantile of a discrete distribution of (value, probability) pairs.

    The function interpolates between the middles of the distribution's steps.
    """
    before, reached = values[0][0], 0.0
    below = 0.0
    for value, probability in values:
        middle = below + probability / 2
        if middle >= share:
            part = (share - reached) / (middle - reached) if middle > reached else 1.0
            return before + part * (value - before)
        before, reached = value, middle
        below += probability
    return values[-1][0]


def _at_most(count: int, share: float, successes: int) -> float:
    """Returns the probability of at most ``successes`` successes in ``count`` trials.

    Args:
        count: Number of trials.
        share: Probability of success in each trial.
        successes: Largest number of successes.
    """
    return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(successes + 1))


def _middles_of_resamples(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Returns each sample with its probability of being a resample's median, for an odd number."""
    count = len(ordered)
    not_yet = [_at_most(count, rank / count, count // 2) for rank in range(count + 1)]
    return [(value, not_yet[rank] - not_yet[rank + 1]) for rank, value in enumerate(ordered)]


def _medians_of_resamples(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Returns each possible median with its probability, for an even number of samples.

    Such a median is the mean of the middle two.
    """
    count = len(ordered)
    half = count // 2
    ways = math.comb(count, half)
    # Half of a resample lies at or below rank i, with its largest at i. The other half lies at or
    # above j, with its smallest at j.
    lower = [((rank + 1) / count) ** half - (rank / count) ** half for rank in range(count)]
    upper = [((count - rank) / count) ** half - ((count - rank - 1) / count) ** half for rank in range(count)]
    not_yet = [_at_most(count, rank / count, half - 1) for rank in range(count + 1)]
    found = []
    for i, value in enumerate(ordered):
        apart = [(j, ways * lower[i] * upper[j]) for j in range(i + 1, count)]
        found += [((value + ordered[j]) / 2, probability) for j, probability in apart]
        of_lower_middle = not_yet[i] - not_yet[i + 1]  # probability that the lower of the middle two has rank i
        found.append((value, max(0.0, of_lower_middle - sum(probability for _, probability in apart))))
    return found


def ratio_of_medians(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Interval:
    """Returns the ratio of two medians with a percentile bootstrap interval.

    Both sides are resampled independently (Efron, 1979, "Bootstrap Methods: Another Look at the
    Jackknife").

    Args:
        first: Positive samples of the numerator, at least two.
        second: Positive samples of the denominator, at least two.
        seed: Seed of the resampling. The same samples give the same interval.

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
    tail = round(RESAMPLES * TAIL)
    return Interval(statistics.median(first) / statistics.median(second), ratios[tail], ratios[-1 - tail])

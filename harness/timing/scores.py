"""Scores of a set of candidates over one baseline in one direction.

A candidate here is a record: one solution on one case. It has failed, it is untimed (it passed, but its speed over
this baseline was not measured or is not certified), or it has a speedup. What is untimed is counted and never scored.

Records also come from files that others wrote: what is missing there or no number counts as not measured.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.records.record import EvaluationRecord, Status
from harness.timing.statistics import PROCESS_SPREAD, RESAMPLES, TAIL, Interval, measured, paired_ratios

#: Where the curve of ``fast_p`` is read.
GRID = (0.0, 0.5, 0.8, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
#: A longer series is no series of ours; the binomial probabilities of ``statistics.median_interval`` would overflow.
MOST_SAMPLES = 1000
#: Nothing that is measured lies outside; products and ratios of what lies within do not overflow.
LEAST, MOST = 1e-100, 1e100


class FastShare(NamedTuple):
    """A share of candidates, with the least and the most that it may be, given how well each was measured."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """What a set of candidates comes to over one baseline in one direction.

    Attributes:
        baseline: Name of the baseline.
        direction: ``forward`` or ``forward_backward``.
        passed: Candidates that passed, timed or not.
        without_own: Of these, candidates that have no kernel of their own.
        failed: Candidates that did not pass.
        untimed: Candidates that passed, but have no certified speedup over this baseline.
        geometric_mean: Of the speedups of those that passed and were timed, with its 95 % interval: the uncertainty of
            measuring these candidates, not of drawing them from others like them. None where there are none.
        fast_p: ``fast_p`` for each p of ``GRID``; None where nothing is known.
        floor_share: Geometric mean of the share of the speed of light that candidates reach, whatever they were
            compared with, with its 95 % interval. None where no share is known.
        with_floor: How many candidates that mean is of.
        beyond_floor: How many were left out of it because their whole interval lies above 1, which nothing can reach:
            there the floor is wrong, or the candidate does less work than the floor counts.
    """

    baseline: str
    direction: str
    passed: int
    without_own: int
    failed: int
    untimed: int
    geometric_mean: Interval | None
    fast_p: dict[float, FastShare | None]
    floor_share: Interval | None
    with_floor: int
    beyond_floor: int


def score(records: Iterable[EvaluationRecord], baseline: str, direction: str) -> Score:
    """Score records over a baseline in a direction; each counts as a candidate of its own."""
    records = list(records)
    passed = [record for record in records if record.status is Status.PASSED]
    series = [found for record in passed if (found := ratios(record, baseline, direction))]
    failed, untimed = len(records) - len(passed), len(passed) - len(series)
    speedups = [measured(one) for one in series]
    shares = [share for record in passed if (share := floor_share(record, direction)) is not None]
    within = [share for share in shares if share.low <= 1]
    mean = geometric_mean(series)
    if mean is not None:  # what no series sees is independent from one candidate to the next
        mean = mean.widened(PROCESS_SPREAD / math.sqrt(len(series)))
    return Score(
        baseline,
        direction,
        len(passed),
        sum(record.has_no_own_kernel for record in passed),
        failed,
        untimed,
        mean,
        {p: fast_p(speedups, p, failed, untimed) for p in GRID},
        mean_share(within),
        len(within),
        len(shares) - len(within),
    )


def fast_p(speedups: Sequence[Interval], p: float, failed: int = 0, untimed: int = 0) -> FastShare | None:
    """The share of all candidates that are correct and more than p times as fast as the baseline.

    Ouyang et al., 2025, "KernelBench: Can LLMs Write Efficient GPU Kernels?", definition of fast_p. At p = 0 it is the
    share that passed. What is untimed belongs to neither side for p above 0: the share is that of the others, its
    lower bound takes all of them for slower, its upper bound for faster.

    Args:
        speedups: Of those that passed and were timed.
        p: How many times as fast, at least 0.
        failed: How many did not pass; these are never faster.
        untimed: How many passed and were not timed.

    Returns:
        The share by the medians; ``low`` counts the speedups whose whole 95 % interval exceeds p, ``high`` those whose
        interval reaches above it. None where no candidate is known to be faster or not.
    """
    unknown = untimed if p > 0 else 0
    certain = untimed - unknown
    total = len(speedups) + failed + untimed
    if total == unknown:
        return None
    faster = certain + sum(one.ratio > p for one in speedups)
    least = certain + sum(one.low > p for one in speedups)
    most = certain + unknown + sum(one.high > p for one in speedups)
    return FastShare(faster / (total - unknown), least / total, most / total)


def geometric_mean(series: Sequence[Sequence[float]], seed: int = 0) -> Interval | None:
    """The geometric mean of candidates' speedups, each the median of its paired ratios, with a 95 % interval.

    The interval is a percentile bootstrap (Efron, 1979, "Bootstrap Methods: Another Look at the Jackknife") in which
    each candidate's own rounds are resampled and the candidates stay the same: it is the uncertainty of measuring these
    candidates, not of drawing them.

    Args:
        series: The paired ratios of each candidate, positive, at least two.
        seed: Seed of the resampling; the same series give the same interval.

    Raises:
        ValueError: A candidate has fewer than two ratios.
    """
    if not series:
        return None
    if min(map(len, series)) < 2:
        raise ValueError("an interval needs at least two ratios of each candidate")
    choose = random.Random(seed)
    sums = [0.0] * RESAMPLES
    for one in series:
        ordered = sorted(one)
        for number in range(RESAMPLES):
            sums[number] += math.log(_median_of_resample(ordered, choose))
    means = sorted(math.exp(total / len(series)) for total in sums)
    tail = round(RESAMPLES * TAIL)
    mean = math.exp(math.fsum(math.log(statistics.median(one)) for one in series) / len(series))
    return Interval(mean, means[tail], means[-1 - tail])


def mean_share(shares: Sequence[Interval]) -> Interval | None:
    """The geometric mean of shares of the floor, with a 95 % interval from theirs; None where there are none.

    The distances to the bounds add up in squares, in logs: candidates are measured independently of each other. That
    the device's ceilings, which all floors rest on, may be off is not in it.

    Args:
        shares: Positive shares with their 95 % intervals.
    """
    if not shares:
        return None
    count = len(shares)
    mean = math.fsum(math.log(one.ratio) for one in shares) / count
    below = math.hypot(*(math.log(one.ratio / one.low) for one in shares)) / count
    above = math.hypot(*(math.log(one.high / one.ratio) for one in shares)) / count
    return Interval(math.exp(mean), math.exp(mean - below), math.exp(mean + above))


def samples(record: EvaluationRecord, side: str, direction: str) -> tuple[float, ...]:
    """The raw samples of a side in a direction, in milliseconds; empty where there are none to rely on.

    ``candidate`` has none where its speed is not certified.
    """
    found = mapping(mapping(record.samples.get(direction)).get(side)).get("samples_ms")
    if not isinstance(found, list | tuple) or not 2 <= len(found) <= MOST_SAMPLES:
        return ()
    values = [number(value) for value in found]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()  # the sides' rounds are paired by position


def ratios(record: EvaluationRecord, baseline: str, direction: str) -> list[float]:
    """The speedup of each round over a baseline; empty where the record did not pass or was not timed."""
    mine, theirs = samples(record, "candidate", direction), samples(record, baseline, direction)
    if record.status is not Status.PASSED or len(mine) != len(theirs):
        return []
    return paired_ratios(mine, theirs)


def floor_share(record: EvaluationRecord, direction: str) -> Interval | None:
    """The share of the floor that a candidate reaches; None where it did not pass, was not timed or has no floor."""
    if record.status is not Status.PASSED or not samples(record, "candidate", direction):
        return None
    return interval(mapping(record.floor.get(direction)).get("share"))


def interval(value: Any) -> Interval | None:
    """What a record keeps as (value, low, high), if these are positive numbers in order."""
    found = [number(one) for one in value] if isinstance(value, list | tuple) else []
    match found:
        case [float(middle), float(low), float(high)] if low <= middle <= high:
            return Interval(middle, low, high)
    return None


def number(value: Any) -> float | None:
    """A positive number of a size that can be multiplied, as a float; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # JSON's integers have no bound
        return None
    return found if LEAST < found < MOST else None


def mapping(value: Any) -> Mapping[str, Any]:
    """An object of JSON, empty for everything else."""
    return value if isinstance(value, Mapping) else {}


def _median_of_resample(ordered: Sequence[float], choose: random.Random) -> float:
    """The median of as many draws with replacement, in constant time.

    A draw is the sample at ``floor(count * u)`` for a uniform u, so the median comes from the middle order statistics
    of uniforms, which are beta distributed (David and Nagaraja, 2003, "Order Statistics", section 2.1).
    """
    count = len(ordered)
    half = count // 2
    if count % 2:
        return ordered[_place(choose.betavariate(half + 1, half + 1), count)]
    lower = choose.betavariate(half, half + 1)
    # The upper of the middle two is the least of ``half`` uniforms above the lower one.
    upper = 1 - (1 - lower) * choose.random() ** (1 / half)
    return (ordered[_place(lower, count)] + ordered[_place(upper, count)]) / 2


def _place(uniform: float, count: int) -> int:
    return min(int(uniform * count), count - 1)

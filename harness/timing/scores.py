"""Scores a set of candidates over one baseline in one direction.

A candidate here is a record: one solution on one case. It has failed, is untimed, or has a speedup.
An untimed candidate passed, but its speed over this baseline was not measured or is not certified.
The module counts untimed candidates and never scores them.

Some records come from files by others. A value that is missing or no number counts as not measured.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.records.json_schemas import MOST_SAMPLES
from harness.records.record import EvaluationRecord, Status
from harness.timing.statistics import PROCESS_SPREAD, RESAMPLES, TAIL, Interval, measured, paired_ratios

#: Values of p at which the curve of ``fast_p`` is computed.
GRID = (0.0, 0.5, 0.8, 1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0)
#: Bounds of measured values. Products and ratios of values inside do not overflow.
LEAST, MOST = 1e-100, 1e100


class FastShare(NamedTuple):
    """A share of candidates, with bounds from the uncertainty of each measurement."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """The scores of a set of candidates over one baseline in one direction.

    Attributes:
        baseline: Name of the baseline.
        direction: ``forward`` or ``forward_backward``.
        passed: Number of candidates that passed, timed or not.
        without_own: Number of these that have no kernel of their own.
        failed: Number of candidates that did not pass.
        untimed: Number of candidates that passed without a certified speedup over this baseline.
        geometric_mean: Geometric mean of the speedups of candidates that passed and were timed,
            with its 95 % interval. The interval is the uncertainty of measuring these candidates,
            not of drawing them from a population. None if there are none.
        fast_p: ``fast_p`` for each p of ``GRID``; None if nothing is known.
        floor_share: Geometric mean of the shares of the speed of light that candidates reach, over
            any baseline, with its 95 % interval. None if no share is known.
        with_floor: Number of candidates in that mean.
        beyond_floor: Number of candidates left out of it because their whole interval lies above 1,
            which is impossible. Then the floor is wrong, or the candidate does less work than the
            floor counts.
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
    """Scores records over a baseline in a direction; each record is a candidate of its own."""
    records = list(records)
    passed = [record for record in records if record.status is Status.PASSED]
    series = [found for record in passed if (found := ratios(record, baseline, direction))]
    failed, untimed = len(records) - len(passed), len(passed) - len(series)
    speedups = [measured(one) for one in series]
    shares = [share for record in passed if (share := floor_share(record, direction)) is not None]
    within = [share for share in shares if share.low <= 1]
    mean = geometric_mean(series)
    if mean is not None:  # a series cannot show this uncertainty, which is independent between candidates
        mean = mean.widened(PROCESS_SPREAD / math.sqrt(len(series)))
    return Score(
        baseline,
        direction=direction,
        passed=len(passed),
        without_own=sum(record.has_no_own_kernel for record in passed),
        failed=failed,
        untimed=untimed,
        geometric_mean=mean,
        fast_p={p: fast_p(speedups, p, failed, untimed) for p in GRID},
        floor_share=mean_share(within),
        with_floor=len(within),
        beyond_floor=len(shares) - len(within),
    )


def fast_p(speedups: Sequence[Interval], p: float, failed: int = 0, untimed: int = 0) -> FastShare | None:
    """Returns the share of candidates that pass and are over p times as fast as the baseline.

    Source: Ouyang et al., 2025, "KernelBench: Can LLMs Write Efficient GPU Kernels?", definition of
    fast_p. At p = 0 it is the share that passed. For p above 0, the share leaves out untimed
    candidates. The lower bound counts them as slower and the upper bound as faster.

    Args:
        speedups: Speedups of the candidates that passed and were timed.
        p: Required speedup, at least 0.
        failed: Number of candidates that did not pass; they are never faster.
        untimed: Number of candidates that passed and were not timed.

    Returns:
        The share by the medians. ``low`` counts the speedups whose whole 95 % interval exceeds p,
        ``high`` those whose interval reaches above p. The result is None if no candidate is known
        to be faster or not.
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
    """Returns the geometric mean of candidates' speedups with a 95 % interval.

    A candidate's speedup is the median of its paired ratios. The interval is a percentile bootstrap
    (Efron, 1979, "Bootstrap Methods: Another Look at the Jackknife"). It resamples each candidate's
    rounds and keeps the candidates. It is therefore the uncertainty of measuring these candidates,
    not of drawing them.

    Args:
        series: Paired ratios of each candidate, positive, at least two.
        seed: Seed of the resampling. The same series give the same interval.

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
    """Returns the geometric mean of shares of the floor with a 95 % interval, or None.

    In logarithms, the distances to the bounds add up in squares, because candidates are measured
    independently. The interval does not contain the uncertainty of the device's ceilings, on which
    all floors depend.

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
    """Returns the raw samples of a side in a direction, in milliseconds.

    The result is empty if there are no reliable samples. ``candidate`` has none if its speed is not
    certified.
    """
    found = mapping(mapping(record.samples.get(direction)).get(side)).get("samples_ms")
    if not isinstance(found, list | tuple) or not 2 <= len(found) <= MOST_SAMPLES:
        return ()
    values = [number(value) for value in found]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else ()  # position pairs the rounds of the sides


def ratios(record: EvaluationRecord, baseline: str, direction: str) -> list[float]:
    """Returns the speedup of each round over a baseline.

    The result is empty if the record did not pass or was not timed.
    """
    mine, theirs = samples(record, "candidate", direction), samples(record, baseline, direction)
    if record.status is not Status.PASSED or len(mine) != len(theirs):
        return []
    return paired_ratios(mine, theirs)


def floor_share(record: EvaluationRecord, direction: str) -> Interval | None:
    """Returns the share of the floor that a candidate reaches.

    The result is None if the candidate did not pass, was not timed or has no floor.
    """
    if record.status is not Status.PASSED or not samples(record, "candidate", direction):
        return None
    return interval(mapping(record.floor.get(direction)).get("share"))


def interval(value: Any) -> Interval | None:
    """Reads a recorded (value, low, high) as an interval, or None unless positive and ordered."""
    found = [number(one) for one in value] if isinstance(value, list | tuple) else []
    match found:
        case [float(middle), float(low), float(high)] if low <= middle <= high:
            return Interval(middle, low, high)
    return None


def number(value: Any) -> float | None:
    """Converts a positive number between ``LEAST`` and ``MOST`` to float; all else becomes None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # JSON's integers have no bound
        return None
    return found if LEAST < found < MOST else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Returns a JSON object, or an empty one for any other value."""
    return value if isinstance(value, Mapping) else {}


def _median_of_resample(ordered: Sequence[float], choose: random.Random) -> float:
    """Draws the median of a resample with replacement, in constant time.

    A draw is the sample at ``floor(count * u)`` for a uniform u. The median therefore comes from
    the middle order statistics of uniforms, which are beta distributed (David and Nagaraja, 2003,
    "Order Statistics", section 2.1).
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

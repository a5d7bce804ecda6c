"""Tests statistics of series: intervals hold the truth as often as they claim, and verdicts follow from them."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.timing.statistics import (
    PROCESS_SPREAD,
    Interval,
    SpeedVerdict,
    latency,
    measured,
    median_interval,
    paired_ratios,
    ratio_of_medians,
)

RUNS = 1000


def pairs(noise: random.Random, count: int, spread: float, drift: float) -> tuple[list[float], list[float]]:
    """A candidate of 5 ms and a baseline of 9, both with one-sided noise, on a machine that slows down meanwhile."""
    mine, theirs = [], []
    for number in range(count):
        slowed = 1 + drift * number / count
        mine.append(5 * slowed * (1 + abs(noise.gauss(0, spread))))
        theirs.append(9 * slowed * (1 + abs(noise.gauss(0, spread))))
    return mine, theirs


@pytest.mark.parametrize("count", [10, 11, 13, 20, 35, 50])
@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_the_interval_of_paired_ratios_holds_the_truth_as_often_as_it_says(count: int, drift: float) -> None:
    noise = random.Random(count)
    held = 0
    for _ in range(RUNS):
        found = median_interval(paired_ratios(*pairs(noise, count, 0.004, drift)))
        assert found.low <= found.ratio <= found.high
        held += found.low <= 9 / 5 <= found.high
    assert 0.92 * RUNS <= held <= 0.98 * RUNS


def test_without_pairing_drift_would_widen_the_interval() -> None:
    mine, theirs = pairs(random.Random(3), 40, 0.004, 0.2)
    assert median_interval(paired_ratios(mine, theirs)).uncertainty < ratio_of_medians(theirs, mine).uncertainty / 5


@pytest.mark.parametrize("count", [2, 3, 9, 10, 24, 33])
def test_the_interval_is_what_resampling_comes_to(count: int) -> None:
    noise = random.Random(count)
    samples = [noise.gauss(1.0, 0.01) for _ in range(count)]
    found = median_interval(samples)
    medians = sorted(statistics.median(noise.choices(samples, k=count)) for _ in range(20_000))
    below = sum(median < found.low for median in medians) / len(medians)
    above = sum(median > found.high for median in medians) / len(medians)
    step = max(medians.count(value) for value in set(medians)) / len(medians)  # it is discrete: so far it may be off
    assert 0 <= below <= 0.025 + step / 2 + 0.005
    assert 0 <= above <= 0.025 + step / 2 + 0.005


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=60))
def test_an_interval_lies_among_the_samples(samples: Sequence[float]) -> None:
    found = median_interval(samples)
    assert min(samples) <= found.low <= found.high <= max(samples)


def test_equal_samples_leave_no_doubt() -> None:
    assert median_interval([1.5] * 12) == Interval(1.5, 1.5, 1.5)


@pytest.mark.parametrize("samples", [[], [1.0]])
def test_one_sample_has_no_interval(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two"):
        median_interval(samples)
    with pytest.raises(ValueError, match="at least two"):
        latency(samples, samples)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(1.0, 0.991, 1.009), SpeedVerdict.SAME),
        (Interval(1.005, 1.002, 1.009), SpeedVerdict.SAME),  # although it excludes 1
        (Interval(1.008, 1.004, 1.012), SpeedVerdict.FASTER),
        (Interval(0.95, 0.9, 0.999), SpeedVerdict.SLOWER),
        (Interval(1.0, 0.98, 1.02), SpeedVerdict.UNCLEAR),
        (Interval(1.0, 1.0, 1.02), SpeedVerdict.UNCLEAR),
    ],
)
def test_verdicts_are_tried_in_order(interval: Interval, verdict: SpeedVerdict) -> None:
    assert interval.verdict is verdict


def test_a_ratio_of_independent_series_is_decided_no_more_often_than_it_says() -> None:
    noise = random.Random(5)
    trials, wrong = 80, 0
    for trial in range(trials):
        first = [noise.gauss(1.0, 0.05) for _ in range(25)]
        second = [noise.gauss(1.0, 0.05) for _ in range(25)]
        wrong += ratio_of_medians(first, second, trial).verdict in (SpeedVerdict.FASTER, SpeedVerdict.SLOWER)
    assert wrong <= 0.1 * trials


def test_what_no_series_sees_widens_every_interval() -> None:
    found = measured([2.0] * 10)
    assert found == pytest.approx((2.0, 2.0 * (1 - PROCESS_SPREAD), 2.0 * (1 + PROCESS_SPREAD)))
    assert measured([1.0] * 10).verdict is SpeedVerdict.SAME

"""Tests the scores of a set: what counts, and that intervals hold the truth as often as they claim."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.timing.scores import GRID, FastShare, fast_p, floor_share, geometric_mean, mean_share, ratios, score
from harness.timing.statistics import PROCESS_SPREAD, Interval, latency, median_interval

RUNS = 400


def judged(status: Status = Status.PASSED, **changes: Any) -> EvaluationRecord:
    return EvaluationRecord(
        problem="norm",
        solution="norm/fused",
        case="full",
        device="cuda:0",
        status=status,
        message="",
        seed="ab",
        digest="d",
        problem_digest="p",
        precision_class=PrecisionClass.FP32,
        **changes,
    )


def timed(speedup: float, share: Sequence[Any] | None = None, candidate: str = "candidate") -> EvaluationRecord:
    """A candidate of 2 ms with a noiseless speedup over eager, and half as much over ``compile``."""
    sides = {name: vars(latency([ms] * 10, [ms] * 10)) for name, ms in (
        (candidate, 2.0), ("eager", 2 * speedup), ("compile", speedup),
    )}  # fmt: skip
    floor = {} if share is None else {"forward": {"floor_ms": 1.0, "share": share}}
    return judged(samples={"forward": sides}, floor=floor)


def noisy(noise: random.Random, truth: float, count: int) -> list[float]:
    return [truth * math.exp(noise.gauss(0, 0.01)) for _ in range(count)]


EXACT = [Interval(one, one, one) for one in (0.5, 1.0, 2.0)]


@pytest.mark.parametrize(
    ("p", "share"), [(0, 3 / 4), (0.4, 3 / 4), (0.5, 2 / 4), (1, 1 / 4), (1.5, 1 / 4), (2, 0), (5, 0)]
)
def test_fast_p_is_a_share_of_all_and_wants_more_than_p(p: float, share: float) -> None:
    assert fast_p(EXACT, p, failed=1) == FastShare(share, share, share)


def test_an_interval_around_p_leaves_room_either_way() -> None:
    speedups = [Interval(1.1, 0.9, 1.3), Interval(0.95, 0.9, 1.05), Interval(2.0, 1.9, 2.1), Interval(0.5, 0.4, 0.6)]
    assert fast_p(speedups, 1.0) == FastShare(2 / 4, 1 / 4, 3 / 4)


def test_the_untimed_are_neither_slow_nor_fast_but_correct() -> None:
    fast = [Interval(2.0, 1.9, 2.1)]
    assert fast_p(fast, 1.0, failed=1, untimed=2) == FastShare(1 / 2, 1 / 4, 3 / 4)
    assert fast_p(fast, 0.0, failed=1, untimed=2) == FastShare(3 / 4, 3 / 4, 3 / 4)
    assert fast_p([], 1.0, untimed=2) is None
    assert fast_p([], 1.0, failed=2) == FastShare(0, 0, 0)
    assert fast_p([], 1.0) is None


def test_the_mean_is_geometric_and_its_interval_knows_nothing_of_other_candidates() -> None:
    assert geometric_mean([[0.5] * 10, [8.0] * 11]) == pytest.approx(Interval(2.0, 2.0, 2.0))
    assert geometric_mean([]) is None
    with pytest.raises(ValueError, match="at least two"):
        geometric_mean([[1.0, 1.1], [1.0]])


def test_the_same_series_give_the_same_interval() -> None:
    series = [noisy(random.Random(number), 1.5, 12) for number in range(3)]
    assert geometric_mean(series) == geometric_mean(series)
    assert geometric_mean(series) != geometric_mean(series, seed=1)


@pytest.mark.parametrize("count", [2, 3, 10, 11, 50])
def test_for_one_candidate_it_is_the_interval_of_its_median(count: int) -> None:
    series = noisy(random.Random(count), 1.5, count)
    found, exact = geometric_mean([series]), median_interval(series)
    choose = random.Random(7)
    drawn = sorted(statistics.median(choose.choices(series, k=count)) for _ in range(20_000))
    assert found is not None
    assert found.ratio == pytest.approx(exact.ratio)
    assert sum(value < found.low * (1 - 1e-9) for value in drawn) / len(drawn) <= 0.035
    assert sum(value > found.high * (1 + 1e-9) for value in drawn) / len(drawn) <= 0.035
    assert sum(value <= found.low * (1 + 1e-9) for value in drawn) / len(drawn) >= 0.015
    assert sum(value >= found.high * (1 - 1e-9) for value in drawn) / len(drawn) >= 0.015


@pytest.mark.parametrize("count", [10, 11, 20, 21])
def test_outliers_reach_the_interval_as_soon_as_they_are_likely_enough(count: int) -> None:
    for outliers in range(1, count // 2):
        share, needed = outliers / count, (count + 1) // 2  # so many of a resample lift its median
        likely = sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(needed, count + 1))
        found = geometric_mean([[1.0] * (count - outliers) + [9.0] * outliers])
        assert found is not None
        if abs(likely - 0.025) > 0.006:  # else chance decides
            assert (found.high > 1 + 1e-9) is (likely > 0.025), outliers


def test_the_interval_of_the_mean_holds_the_truth_as_often_as_it_says() -> None:
    noise = random.Random(1)
    held = 0
    for _ in range(RUNS):
        found = geometric_mean([noisy(noise, 0.8, 10), noisy(noise, 3.2, 15)])
        assert found is not None
        held += found.low <= 1.6 <= found.high
    assert 0.92 * RUNS <= held <= 0.98 * RUNS


def test_the_interval_of_the_mean_share_holds_the_truth_as_often_as_it_says() -> None:
    noise = random.Random(2)
    held = 0
    for _ in range(RUNS):
        shares = []
        for truth, spread in ((0.4, 0.01), (0.9, 0.04), (0.6, 0.02)):
            share, off = truth * math.exp(noise.gauss(0, spread)), math.exp(1.96 * spread)
            shares.append(Interval(share, share / off, share * off))
        found = mean_share(shares)
        assert found is not None
        held += found.low <= (0.4 * 0.9 * 0.6) ** (1 / 3) <= found.high
    assert 0.92 * RUNS <= held <= 0.98 * RUNS


def test_distances_to_the_bounds_of_shares_add_up_in_squares() -> None:
    found = mean_share([Interval(0.5, 0.4, 0.55)] * 4)
    assert found == pytest.approx(Interval(0.5, 0.5 * math.sqrt(0.4 / 0.5), 0.5 * math.sqrt(0.55 / 0.5)))
    assert mean_share([]) is None


def test_what_did_not_pass_has_neither_speedup_nor_share() -> None:
    passed = timed(2.0, [0.5, 0.5, 0.5])
    failed = replace(passed, status=Status.CHEATED)
    assert (ratios(passed, "eager", "forward"), ratios(failed, "eager", "forward")) == ([2.0] * 10, [])
    assert floor_share(passed, "forward") == Interval(0.5, 0.5, 0.5)
    assert floor_share(failed, "forward") is None


def test_a_score_tells_the_failed_from_the_untimed() -> None:
    records = [
        timed(2.0, [0.5, 0.49, 0.51]),
        timed(8.0, [0.125, 0.12, 0.13]),
        timed(9.0, candidate="uncertified"),
        judged(),
        replace(timed(50.0, [0.9, 0.9, 0.9]), status=Status.CHEATED),
    ]
    found = score(records, "eager", "forward")
    assert (found.passed, found.failed, found.untimed) == (4, 1, 2)
    spread = PROCESS_SPREAD / math.sqrt(2)  # of two candidates, and each series is exact
    assert found.geometric_mean == pytest.approx((4.0, 4.0 * (1 - spread), 4.0 * (1 + spread)))
    assert found.fast_p[3.0] == FastShare(1 / 3, 1 / 5, 3 / 5)
    assert list(found.fast_p) == list(GRID)
    assert found.floor_share is not None
    assert found.floor_share.ratio == pytest.approx(0.25)
    assert found.with_floor == 2
    over_compile = score(records, "compile", "forward").geometric_mean
    assert over_compile == pytest.approx((2.0, 2.0, 2.0), rel=PROCESS_SPREAD)
    backward = score(records, "eager", "forward_backward")
    assert (backward.passed, backward.failed, backward.untimed) == (4, 1, 4)
    assert backward.geometric_mean is None
    assert backward.floor_share is None


def test_what_is_beyond_the_floor_is_counted_and_not_praised() -> None:
    records = [timed(2.0, [0.5, 0.5, 0.5]), timed(2.0, [1.5, 1.4, 1.6]), timed(2.0, [1.01, 0.99, 1.03]), timed(2.0)]
    found = score(records, "eager", "forward")
    assert found.floor_share is not None
    assert found.floor_share.ratio == pytest.approx(math.sqrt(0.5 * 1.01))
    assert (found.with_floor, found.beyond_floor) == (2, 1)


@pytest.mark.parametrize(
    "bad",
    ["nan", None, {}, [], [2.0], ["nan"] * 10, [2.0] * 9, [2.0] * 11, [0.0] * 10, [-1.0] * 10, [True] * 10,
     [10**400] * 10, [float("inf")] * 10, [2.0] * 3000, [[2.0]] * 10],
)  # fmt: skip
def test_samples_that_are_none_are_not_scored(bad: Any) -> None:
    record = timed(2.0)
    record.samples["forward"]["candidate"] = {"samples_ms": bad}
    found = score([record], "eager", "forward")
    assert (found.passed, found.failed, found.untimed, found.geometric_mean) == (1, 0, 1, None)


@pytest.mark.parametrize("samples", [{"forward": None}, {"forward": []}, {"forward": {"candidate": 3, "eager": "x"}}])
def test_sides_that_are_none_are_not_scored(samples: dict[str, Any]) -> None:
    assert score([judged(samples=samples)], "eager", "forward").untimed == 1


def test_no_records_have_no_score() -> None:
    found = score([], "eager", "forward")
    assert (found.passed, found.failed, found.untimed, found.geometric_mean) == (0, 0, 0, None)
    assert set(found.fast_p.values()) == {None}

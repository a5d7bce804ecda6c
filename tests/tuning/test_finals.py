"""Tests the finals on records whose times are given: nobody times anything here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.tuning.finals import MOST_FINALISTS, MOST_ROUNDS, decide, finalists
from harness.tuning.influence import influences
from harness.tuning.results import Trial, cost_of, trial_of
from harness.tuning.space import Point

SAMPLES = 60


def record(time_ms: float, noise: float, *, seed: int = 0, case: str = "full") -> EvaluationRecord:
    """A record that passed, whose candidate takes this long and eager takes 2 ms."""
    draw = random.Random(seed)
    mine = [time_ms * (1 + noise * draw.uniform(-1, 1)) for _ in range(SAMPLES)]
    samples: dict[str, Any] = {"candidate": {"samples_ms": mine}, "eager": {"samples_ms": [2.0] * SAMPLES}}
    return EvaluationRecord(
        seed="", digest="d", problem_digest="p", precision_class=PrecisionClass.FP32,
        problem="p", solution="s", case=case, device="cuda:0", status=Status.PASSED, message="",
        samples={"forward": samples}, speedup={"forward": 2.0 / time_ms}, forward_ms=time_ms, record=f"r{seed}",
    )  # fmt: skip


class Bench:
    """Answers with records, and notes what was asked."""

    def __init__(self, times: Mapping[Point, tuple[float, float]]):
        self.times = times
        self.asked: list[tuple[tuple[Point, ...], bool]] = []

    def __call__(self, points: Sequence[Point], is_full: bool) -> Mapping[Point, Sequence[EvaluationRecord]]:
        self.asked.append((tuple(points), is_full))
        return {point: [record(*self.times[point], seed=hash(point) % 99 + len(self.asked))] for point in points}


def plain(point: Point) -> int:
    return int(point[0])


def test_one_that_is_ahead_beyond_noise_wins_at_once() -> None:
    bench = Bench({(1,): (1.0, 0.01), (2,): (1.1, 0.01)})
    decision = decide([(2,), (1,)], bench, plain)
    assert decision.winner == (1,)
    assert bench.asked == [(((2,), (1,)), True)]
    assert [str(one.verdict) for one in decision.rivals] == ["SAME", "FASTER"]
    assert decision.rivals[1].leads["full"].low > 1


def test_of_those_that_are_as_fast_the_simplest_wins() -> None:
    bench = Bench({(3,): (1.0, 0.001), (0,): (1.002, 0.001), (2,): (1.2, 0.001)})
    decision = decide([(3,), (0,), (2,)], bench, plain)
    assert decision.winner == (0,)
    assert decision.rivals[0].finalist.point == (3,)


def test_what_noise_hides_is_timed_again_and_named_no_winner() -> None:
    bench = Bench({(1,): (1.0, 0.8), (2,): (1.0, 0.8), (3,): (3.0, 0.001)})
    decision = decide([(1,), (2,), (3,)], bench, plain)
    assert decision.winner is None
    assert decision.rounds == MOST_ROUNDS == len(bench.asked) - 1
    assert not any(is_full for _, is_full in bench.asked[1:])
    assert all((3,) not in points for points, _ in bench.asked[1:])  # it is far behind, so it is not timed again


def test_one_that_fails_in_full_is_out() -> None:
    class Failing(Bench):
        def __call__(self, points: Sequence[Point], is_full: bool) -> Mapping[Point, Sequence[EvaluationRecord]]:
            found = dict(super().__call__(points, is_full))
            found[(1,)] = [replace(found[(1,)][0], status=Status.WRONG_OUTPUT)]
            return found

    decision = decide([(1,), (2,)], Failing({(1,): (1.0, 0.01), (2,): (1.5, 0.01)}), plain)
    assert (decision.winner, decision.failed) == ((2,), ((1,),))
    nothing = decide([(1,)], Failing({(1,): (1.0, 0.01)}), plain)
    assert (nothing.winner, nothing.rivals) == (None, ())
    lost = decide([(1,)], lambda points, is_full: {}, plain)
    assert (lost.winner, lost.failed) == (None, ((1,),))


def test_several_cases_need_a_lead_on_one_and_no_loss_on_another() -> None:
    def judge(points: Sequence[Point], _: bool) -> Mapping[Point, Sequence[EvaluationRecord]]:
        times = {(1,): (1.0, 1.0), (2,): (1.3, 1.0), (3,): (0.8, 2.0)}
        return {
            point: [record(times[point][at], 0.001, case=case) for at, case in enumerate(("a", "b"))]
            for point in points
        }

    assert decide([(1,), (2,)], judge, plain).winner == (1,)
    assert decide([(1,), (3,)], judge, plain).winner is None


def test_only_the_fastest_and_the_default_come_to_the_finals() -> None:
    costs = [1.0, 1.01, None, 1.02, 1.2, 1.03, 1.04]
    trials = [Trial({"a": number}, "PASSED", cost) for number, cost in enumerate(costs)]

    def point_of(trial: Trial) -> Point:
        return (trial.settings["a"],)

    assert finalists(trials, point_of, (3,)) == [(0,), (1,), (3,), (5,)]
    assert MOST_FINALISTS == 4
    assert finalists(trials, point_of, (4,)) == [(0,), (1,), (3,), (5,), (4,)]  # the default, though it is 20 % behind
    assert finalists(trials, point_of, (2,)) == [(0,), (1,), (3,), (5,)]  # a default without a time
    assert finalists([trials[2]], point_of, (2,)) == []


def test_the_cost_is_the_time_over_eager_s_and_a_failure_has_none() -> None:
    passed = record(1.0, 0.0)
    assert cost_of(passed) == pytest.approx(0.5)
    assert cost_of(replace(passed, speedup=None)) is None
    assert cost_of(replace(passed, speedup={"forward": 0.0})) is None
    trial = trial_of({"a": 1}, [passed, record(4.0, 0.0, case="b")], "")
    assert trial.cost == pytest.approx(1.0)  # the geometric mean of 0.5 and 2
    assert trial.time_ms is None
    failed = trial_of({"a": 1}, [passed, replace(passed, status=Status.TIMEOUT, message="too long\nmore")], "")
    assert (failed.status, failed.cost, failed.message) == ("TIMEOUT", None, "too long")


def test_the_influence_finds_the_parameter_that_matters() -> None:
    trials = [
        Trial({"much": much, "little": little, "part": part}, "PASSED", 1.0 + much + 0.01 * little)
        for much in (0, 1, 3)
        for little in (0, 1)
        for part in (0, 1)
    ]
    found = influences([*trials, Trial({"much": 9, "little": 9, "part": 9}, "CRASHED")], lambda name, _: name != "part")
    assert [one.name for one in found] == ["much", "little"]
    assert found[0].share > 0.95
    assert found[0].effects[0] < 1 < found[0].effects[3]
    assert influences(trials[:5], lambda *_: True) == []
    assert influences([replace(one, cost=1.0) for one in trials], lambda *_: True)[0].share == 0.0

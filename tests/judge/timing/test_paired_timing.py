"""Tests series of claims: head starts, work after the end of a call, and impossible claims."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.timing.paired_timing import (
    CANDIDATE,
    FULL_HEAD_START_US,
    HEAD_START_US,
    ClockRuleBroken,
    Series,
    Side,
    measure,
)
from harness.wire.commands import TimeCalls
from harness.wire.replies import Timed


@dataclass
class Scripted:
    """A worker that says what it is told to say, and takes longer than that.

    Attributes:
        says: Milliseconds of a call, and until the device is idle.
        asked: The commands so far.
    """

    says: tuple[float, float]
    asked: list[TimeCalls] = field(default_factory=list)

    def request(self, command: TimeCalls, *_: Any) -> Timed:
        self.asked.append(command)
        time.sleep(sum(max(0.0, one) for one in self.says if math.isfinite(one)) / 1e3 + 1e-4)
        return Timed(*self.says)

    def pause(self) -> None:
        """Nothing: it does nothing of its own."""

    def resume(self) -> None:
        """Nothing."""


def series(mine: Scripted, eager: Scripted, **candidate: Any) -> Series:
    sides = [Side(mine, None, **candidate), Side(eager, None, "eager")]  # type: ignore[arg-type]
    timed = [(side, None) for side in sides]
    return measure(
        timed, lambda _: lambda: None, torch.device("cpu"), choose=random.Random(0), between=lambda: None, rounds=10
    )


@pytest.mark.parametrize(("mine", "eager", "expected"), [(2.0, 3.0, HEAD_START_US), (0.3, 3.0, 0), (2.0, 0.3, 0)])
def test_launches_get_a_head_start_where_all_calls_are_long(mine: float, eager: float, expected: int) -> None:
    workers = Scripted((mine, 0.0)), Scripted((eager, 0.0))
    series(*workers)
    for worker in workers:
        assert {command.head_start_us for command in worker.asked[:2]} == {0}  # warming up tells how long they are
        assert {command.head_start_us for command in worker.asked[2:]} == {expected}


def test_a_side_keeps_the_head_start_that_it_is_given() -> None:
    mine = Scripted((2.0, 0.0))
    series(mine, Scripted((2.0, 0.0)), head_start_us=FULL_HEAD_START_US)
    assert {command.head_start_us for command in mine.asked} == {FULL_HEAD_START_US}


def test_work_behind_the_end_counts() -> None:
    found = series(Scripted((1.0, 3.1)), Scripted((4.0, 0.1)))
    assert found.hidden_ms == pytest.approx(3.0)
    assert found.candidate.median_ms == pytest.approx(4.1)
    assert found.eager.median_ms == pytest.approx(4.1)
    assert found.speedups["eager"].ratio == pytest.approx(1.0)
    assert set(found.candidate.behind_ms) == {3.1}


@pytest.mark.parametrize(("call", "more", "is_hidden"), [(0.1, 0.04, False), (0.1, 0.06, True), (5.0, 0.09, False)])
def test_waking_up_a_little_later_is_no_work(call: float, more: float, is_hidden: bool) -> None:
    found = series(Scripted((call, 0.1 + more)), Scripted((call, 0.1)))
    assert (found.hidden_ms > 0) == is_hidden
    assert found.candidate.median_ms == pytest.approx(call + (0.1 + more) * is_hidden)


@pytest.mark.parametrize(
    "claim", [(0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (0.1, math.nan), (0.1, -0.05), (math.inf, 0.0), (0.1, math.inf)]
)
def test_what_cannot_be_is_a_cheat(claim: tuple[float, float]) -> None:
    with pytest.raises(CandidateStopped, match="but the judge's clock measured") as stopped:
        series(Scripted(claim), Scripted((0.1, 0.0)))
    assert (stopped.value.status, stopped.value.rule) == ("CHEATED", "clock")


@pytest.mark.parametrize(
    ("times", "rounds"),
    [((1.0, 1.001), 6), ((1.0, 1.008), 10), ((1.0, 1.4), 14), ((20.0, 28.0), 6), ((0.1, 28.0), 14)],
)
def test_what_repeats_well_needs_fewer_rounds(times: tuple[float, float], rounds: int) -> None:
    class Unsteady(Scripted):
        def request(self, command: TimeCalls, *_: Any) -> Timed:
            self.says = times[len(self.asked) % 2], 0.0
            return super().request(command)

    sides = [
        (Side(worker, None, name), None)
        for worker, name in ((Unsteady((1, 0)), CANDIDATE), (Scripted((2, 0)), "eager"))
    ]
    found = measure(
        sides, lambda _: lambda: None, torch.device("cpu"), choose=random.Random(0), between=lambda: None, rounds=14
    )
    assert len(found.candidate.samples_ms) == rounds


def test_a_candidate_alone_hides_nothing() -> None:
    sides = [(Side(Scripted((1.0, 9.0)), None), None)]  # type: ignore[arg-type]
    found = measure(
        sides, lambda _: lambda: None, torch.device("cpu"), choose=random.Random(0), between=lambda: None, rounds=10
    )
    assert (found.hidden_ms, found.latencies[CANDIDATE].median_ms) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("own", "behind", "is_refuted"),
    [(0.1, 0.2, False), (0.1, 2.4, True), (2.3, 2.4, False)],  # the last: a host that is slow to wake up
)
def test_a_device_that_works_behind_a_rival_s_calls_was_kept_busy(own: float, behind: float, is_refuted: bool) -> None:
    if not is_refuted:
        assert series(Scripted((1.0, own)), Scripted((1.0, behind))).speedups["eager"].ratio == pytest.approx(1.0)
        return
    with pytest.raises(ClockRuleBroken, match=r"after calls of eager: it became idle 2\.4 ms after") as stopped:
        series(Scripted((1.0, own)), Scripted((1.0, behind)))
    assert stopped.value.series.candidate.median_ms == pytest.approx(1.0)
    assert (stopped.value.status, stopped.value.rule) == ("CHEATED", "clock")


@pytest.mark.parametrize(("to_beat", "rounds"), [(0.0, 14), (1.0, 14), (1.6, 14), (3.0, 6)])
def test_a_series_ends_early_where_the_speedup_to_beat_is_far_away(to_beat: float, rounds: int) -> None:
    """The candidate's calls take 1 and 1.4 ms, eager's 2: at least 1.43 and at most 2 times as fast."""

    class Unsteady(Scripted):
        def request(self, command: TimeCalls, *_: Any) -> Timed:
            self.says = (1.0, 1.4)[len(self.asked) % 2], 0.0
            return super().request(command)

    workers = (Unsteady((1, 0)), CANDIDATE), (Scripted((2, 0)), "eager")
    found = measure(
        [(Side(worker, None, name), None) for worker, name in workers],  # type: ignore[arg-type]
        lambda _: lambda: None,
        torch.device("cpu"),
        choose=random.Random(0),
        between=lambda: None,
        rounds=14,
        to_beat=to_beat,
    )
    assert len(found.candidate.samples_ms) == rounds
    assert found.beaten_by == (to_beat if rounds < 14 else 0.0)
    assert found.speedups["eager"].ratio == pytest.approx(2 / 1.2, abs=0.35)

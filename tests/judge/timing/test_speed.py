"""Tests what a record says about the speed of a candidate."""

from __future__ import annotations

from harness.judge.timing.paired_timing import Series
from harness.judge.timing.speed import TimingResult
from harness.timing.statistics import Interval, latency


def series(beaten_by: float) -> Series:
    sides = {name: latency([ms] * 6, [ms + 1] * 6) for name, ms in (("candidate", 2.0), ("eager", 1.0))}
    return Series(sides, {"eager": Interval(0.5, 0.5, 0.5)}, beaten_by=beaten_by)


def test_a_record_says_why_its_speed_is_of_few_pairs() -> None:
    found = TimingResult(series={"forward": series(1.25), "forward_backward": series(0.0)}).fields()
    assert found["message"] == (
        "note: speed (forward) is of 6 pairs only: enough to show that the candidate is more than 10% "
        "below the speedup to beat, 1.25x over eager"
    )
    assert found["speedup"] == {"forward": 0.5, "forward_backward": 0.5}

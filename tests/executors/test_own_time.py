"""Tests the time limit on a problem's code in the judge's own process."""

from __future__ import annotations

import threading
from pathlib import Path

from harness.errors import ProblemError
from harness.executors.own_time import SHARE, OwnTime
from harness.executors.plan import Job
from harness.executors.prebuild import PlannedWork
from harness.judge.policy import Policy
from harness.judge.process.clocks import Limits
from harness.project.problems import Problem
from harness.project.solutions import Candidate, Solution
from harness.records.record import PrecisionClass

PROBLEM = Problem("slow", Path("slow.py"), "", "0", frozenset(), {"a": {}, "b": {}}, PrecisionClass.FP32)


def work(run_s: float) -> PlannedWork:
    job = Job(Candidate(PROBLEM, Solution("s", Path("s.py"), "", "1")), (("a", {}), ("b", {})))
    return PlannedWork(job, Policy("cpu", "0", Limits(run_s, 1.0)), job.cases or (), (1, 1))


def test_time_that_the_worker_takes_is_not_the_problem_s() -> None:
    now, waited = [0.0], [0.0]
    own_time = OwnTime(lambda _: None, lambda: now[0], lambda: waited[0])
    assert own_time.left_s() is None
    with own_time.of(work(60.0)):
        now[0], waited[0] = 1000.0, 900.0
        assert own_time.left_s() == SHARE * 60.0 - 100.0
        own_time.next_case()
        assert own_time.left_s() == SHARE * 60.0
    assert own_time.left_s() is None


def test_a_problem_that_takes_longer_is_reported_once_with_its_case() -> None:
    told: list[ProblemError] = []
    is_told = threading.Event()

    def report(error: ProblemError) -> None:
        told.append(error)
        is_told.set()

    with OwnTime(report).of(work(0.0)):
        is_told.wait()
    (error,) = told
    assert "slow.py: judging case 'a' took longer than 0 s" in str(error)
    assert "--timeout" in str(error)

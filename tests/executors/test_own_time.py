"""Tests the time limit on a problem's code in the judge's own process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.executors.own_time import GRACE_S, SHARE, OwnTime, share_s, too_long, unqueued_s
from harness.executors.plan import Job
from harness.executors.prebuild import PlannedWork
from harness.judge.policy import Policy
from harness.judge.process.time_limits import Limits
from harness.project.problems import Problem
from harness.project.solutions import Candidate, Solution
from harness.records.record import PrecisionClass
from harness.system.processes import queued_seconds

PROBLEM = Problem("slow", Path("slow.py"), "", "0", frozenset(), {"a": {}, "b": {}}, PrecisionClass.FP32)


#: Programs that compute on the processor on which the judge does.
NEIGHBOURS = 12


def work(run_s: float) -> PlannedWork:
    job = Job(Candidate(PROBLEM, Solution("s", Path("s.py"), "", "1")), (("a", {}), ("b", {})))
    return PlannedWork(job, Policy("cpu", "0", Limits(run_s, 1.0)), job.cases or (), (1, 1))


class Timer:
    """Stands in for the kernel's timer, which would end the tests.

    Attributes:
        set_to: The seconds that it was set to last.
    """

    def __init__(self) -> None:
        self.set_to = 0.0

    def __call__(self, seconds: float) -> None:
        self.set_to = seconds


@pytest.fixture
def neighbours() -> Iterator[None]:
    """Programs that keep one processor busy, to which this process is bound meanwhile."""
    if not hasattr(os, "sched_setaffinity") or not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not tell how long a thread waits for a processor")
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NEIGHBOURS)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()
        os.sched_setaffinity(0, allowed)


def compute(seconds: float) -> None:
    """Computes for so many seconds of a processor's time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_time_that_the_worker_takes_is_not_the_problem_s() -> None:
    now, waited, timer = [0.0], [0.0], Timer()
    own_time = OwnTime(lambda: None, lambda: now[0], lambda: waited[0], timer)
    assert own_time.left_s() is None
    limit_s = share_s(work(60.0).policy)
    assert limit_s == SHARE * 60.0
    with own_time.of(limit_s):
        now[0], waited[0] = 1000.0, 900.0
        assert own_time.left_s() == limit_s - 100.0
        own_time.next_case()
        assert own_time.left_s() == limit_s
    assert own_time.left_s() is None


def test_a_problem_that_takes_longer_is_reported() -> None:
    is_told = threading.Event()
    with OwnTime(is_told.set, end_after=Timer()).of(0.0):
        assert is_told.wait(60.0)


def test_time_that_other_programs_take_is_not_the_problem_s(neighbours: None) -> None:
    is_told = threading.Event()
    began_s, queued_s = time.monotonic(), queued_seconds()
    with OwnTime(is_told.set, end_after=Timer()).of(1.0):
        while queued_seconds() - queued_s < 2.0:
            compute(0.02)
            assert time.monotonic() - began_s < 300.0
        assert not is_told.is_set()


def test_time_in_which_a_problem_sleeps_is_its_own() -> None:
    began_s = unqueued_s()
    time.sleep(0.2)
    assert unqueued_s() - began_s > 0.1


def test_the_kernel_ends_what_keeps_the_interpreter_lock() -> None:
    timer = Timer()
    own_time = OwnTime(lambda: None, lambda: 0.0, lambda: 0.0, timer)
    with own_time.of(600.0):
        assert timer.set_to == 600.0 + GRACE_S
    assert timer.set_to == 0.0


def test_the_error_names_the_case_and_the_option() -> None:
    one = work(0.0)
    assert "slow.py: judging case 'a' took longer than 0 s" in str(too_long(one))
    assert "--timeout" in str(too_long(one))
    one.cases = ()
    assert "slow.py: measuring the sizes of its cases took longer" in str(too_long(one))

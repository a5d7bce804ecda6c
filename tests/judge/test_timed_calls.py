# ruff: noqa: E501 - the table keeps what a candidate does in one line
"""Many calls in a row by the judge's clock: what a candidate gains by lying, by skipping, and by leaving work behind.

Speed itself is measured on a GPU. The windows, and what is looked at in them, are the same anywhere: here candidates
run on the CPU, and the events that would have timed them are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from harness.executors.tools import tools_for
from harness.judge import speed
from harness.judge.baseline import Baseline
from harness.judge.evaluation import CandidateJudge, Policy, Surroundings
from harness.judge.handle import CandidateStopped, Limits, Workers
from harness.judge.series import Series
from harness.judge.slots import Slots
from harness.problems import read_problem
from harness.records import EvaluationRecord, Status
from harness.solutions import Candidate, read_solution
from harness.timing.statistics import Interval, latency
from harness.wire.messages import Region, Value

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x):
        return torch.tanh(x @ x.T) * self.scale


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
SOLUTION = '''
import sys, threading, time
import torch
import torch.nn as nn


def calls():
    """How many calls the command that this one belongs to has; 0 outside of loops."""
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_name == "loop":
            return len(frame.f_locals["loop"].calls)
        frame = frame.f_back
    return 0


def later(buffer, x, scale):
    time.sleep(0.5)
    buffer.copy_(torch.tanh(x @ x.T) * scale)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        self.number = 0

    def forward(self, x):
        self.number += 1
        n = calls()
{body}
        return torch.tanh(x @ x.T) * self.scale
'''


class Trial(NamedTuple):
    """What a candidate does before it computes, the milliseconds it claims, eager's, and what must come of it."""

    name: str
    body: str
    claim_ms: float
    eager_ms: float
    status: str
    rule: str | None = None
    words: str = ""


TRIALS = [
    Trial("honest", "", 20.0, 0.5, "PASSED"),
    Trial("honest_one_call", "", 30.0, 30.0, "PASSED"),
    Trial("slow_and_says_so", "time.sleep(0.1 if n else 0)", 110.0, 120.0, "PASSED"),
    Trial("slow_and_lies", "time.sleep(0.1 if n else 0)", 1.0, 120.0, "CHEATED", "clock", "at least"),
    Trial(
        "dawdles_in_short_windows", "time.sleep({0: 0, 1: 0.2}.get(n, 0.1))", 1.0, 120.0, "CHEATED", "clock", "at least"
    ),
    Trial("logs_its_calls", "print(self.number, n)", 20.0, 0.5, "PASSED"),
    Trial("skips", "if n and self.number % 2: return x.new_zeros(64, 64)", 0.5, 0.5, "WRONG_OUTPUT", None, "in a row"),
    Trial(
        "remembers",
        "if n and hasattr(self, 'kept'): return self.kept\n"
        "        self.kept = (torch.tanh(x @ x.T) * self.scale).detach()\n        if n: return self.kept",
        0.5,
        0.5,
        "WRONG_OUTPUT",
        None,
        "in a row",
    ),
    Trial(
        "leaves_it_to_a_thread",
        "y = torch.empty(64, 64)\n"
        "        if n: threading.Thread(target=later, args=(y, x.detach().clone(), self.scale.detach())).start(); return y",
        0.5,
        0.5,
        "WRONG_OUTPUT",
        None,
        "in a row",
    ),
    Trial(
        "waits_for_its_thread",
        "y = torch.empty(64, 64)\n"
        "        if n and not torch.is_grad_enabled():\n"
        "            t = threading.Thread(target=y.copy_, args=(torch.tanh(x @ x.T) * self.scale,)); t.start(); t.join()\n"
        "            return y",
        20.0,
        0.5,
        "PASSED",
    ),
    Trial("empties_its_inputs", "x.data.mul_(0 if n else 1)", 0.5, 0.5, "CHEATED", "input_mutation"),
    Trial(
        "coarse_when_timed",
        "if n: return torch.tanh((x.bfloat16() @ x.bfloat16().T).float()) * self.scale",
        20.0,
        0.5,
        "WRONG_OUTPUT",
        None,
        "in a timed call",
    ),
    Trial(
        "coarse_backward_when_timed",
        "s = self.scale\n        if n and torch.is_grad_enabled(): return torch.tanh(x @ x.T) * (1.01 * s - 0.01 * s.detach())",
        20.0,
        0.5,
        "WRONG_GRADIENT",
        None,
        "in a timed call",
    ),
    Trial("fails_when_timed", "assert not n, 'no more'", 0.5, 0.5, "RUNTIME_ERROR", None, "no more"),
    Trial(
        "another_form_when_timed",
        "if n: return x.new_zeros(2, 2)",
        0.5,
        0.5,
        "WRONG_OUTPUT",
        None,
        "expected [64, 64]",
    ),
]


@pytest.fixture(scope="module")
def baseline(home: Path) -> Iterator[Baseline]:
    """Eager's worker, for all."""
    workers = Workers("cpu", tools_for("cpu", home).libraries, None, confined=False)
    rival = Baseline(workers)
    yield rival
    rival.close()
    workers.close()


@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in TRIALS])
def test_timed_calls(
    one: Trial, tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def events(*_: Any) -> Series:
        mine, eager = (latency([ms, ms], [ms + 60.0] * 2) for ms in (one.claim_ms, one.eager_ms))
        ratio = one.eager_ms / one.claim_ms
        return Series(mine, eager, Interval(ratio, ratio, ratio))

    monkeypatch.setattr(speed, "measure", events)
    record = _judged(one, tmp_path, home, baseline)
    assert (record.status, record.rule) == (one.status, one.rule), record.message
    assert one.words in record.message
    if record.status == "PASSED":
        assert set(record.certified) == {"forward", "forward_backward"}
        calls = 1 if one.eager_ms > 8 else 16
        for proof in record.certified.values():
            assert proof["calls"] == calls
            assert 0 < proof["at_least_ms"] < one.claim_ms + proof["resolution_ms"]
            assert set(proof["windows"]) == {"candidate", "eager", "storing"}


@pytest.mark.parametrize("elements", [300, 1 << 18])
def test_results_that_change_after_the_bell_are_not_taken(elements: int) -> None:
    place = Region(0, (elements,), "float32")
    slots = Slots([Value(place, None)], [place], 2, torch.device("cpu"))
    places = slots.result_places(seed=1)
    before = slots.sampled_results(1, places)
    (taken,) = slots.results(1, places, before)
    assert taken.shape == (elements,)
    slots.poison(2)  # the first call's as well, and the second's anew: other bits than the empty arena's
    with pytest.raises(CandidateStopped) as stopped:
        slots.results(1, places, before)
    assert (stopped.value.status, stopped.value.rule) == (Status.CHEATED, "late_write")
    slots.close()


def _judged(one: Trial, folder: Path, home: Path, baseline: Baseline) -> EvaluationRecord:
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "answer.py").write_text(SOLUTION.format(body=f"        {one.body}"))
    candidate = Candidate(
        problem=read_problem(folder / "problem.py"), solution=read_solution(folder / "answer.py", "answer")
    )
    tools = tools_for("cpu", home)
    workers = Workers("cpu", tools.libraries, None)
    judge = CandidateJudge(
        candidate,
        Policy("cpu", "5eed" * 8, Limits(60.0, 60.0)),
        Surroundings.of_this_machine(home, tools.compiler, "cpu"),
        workers,
        baseline=baseline,
    )
    try:
        return judge.evaluate("full", {})
    finally:
        judge.close()
        workers.close()

# ruff: noqa: E501 - the table keeps what a candidate does in one line
"""Tests windows of many calls by the judge's clock, and candidates that lie, skip work or leave work behind.

Speed itself is measured on a GPU. The windows, and what is looked at in them, are the same anywhere: here candidates
run on the CPU, and the events that would have timed them are given.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.executors.tools import tools_for
from harness.judge.policy import Policy
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.judge.timing import certification as proof
from harness.judge.timing import speed
from harness.judge.timing.device_conditions import Conditions
from harness.judge.timing.paired_timing import HEAD_START_US, ClockRuleBroken, Series
from harness.judge.timing.rivals import Baseline
from harness.records.record import EvaluationRecord
from harness.records.rules import Mode
from harness.report.speed_comparison import ComparedRecord, columns
from harness.timing.statistics import Interval, latency
from tests.judge import in_process

PROBLEM = """
import torch
import torch.nn as nn

torch.set_num_threads(1)
{declared}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        {init}

    def forward(self, {arguments}):
        {reference}


def get_inputs():
    return [torch.randn(64, 64){inputs}]


def get_init_inputs():
    return []
"""
SOLUTION = '''
import os, subprocess, sys, threading, time
import torch
import torch.nn as nn

torch.set_num_threads(1)


class Windows:
    """The commands to loop that came so far, and the call that is under way."""
    last, count = None, 0


def under_way():
    """The loop that this call belongs to, and its number in it; None outside of loops."""
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_name == "loop":
            loop = frame.f_locals["loop"]
            if loop is not Windows.last:
                Windows.last, Windows.count = loop, Windows.count + 1
            return loop, frame.f_locals["number"]
        frame = frame.f_back
    return None, 0


def later(buffer, x, scale):
    time.sleep(0.5)
    buffer.copy_(torch.tanh(x @ x.T) * scale)


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x.new_empty(64, 64)

    @staticmethod
    def backward(ctx, gradient):
        return torch.zeros(64, 64), torch.zeros(64)


class Remembering(torch.autograd.Function):
    kept = None

    @staticmethod
    def forward(ctx, x, w, scale):
        y = x @ w.T
        ctx.save_for_backward(x, w, scale, y)
        return y * scale

    @staticmethod
    def backward(ctx, gradient):
        x, w, scale, y = ctx.saved_tensors
        if Remembering.kept is None:
            Remembering.kept = (gradient * scale) @ w
        return Remembering.kept, (gradient * scale).T @ x, (gradient * y).sum(0)


def cut(tensor):
    """The tensor with ten bits of mantissa, as TF32 has them."""
    return ((tensor.detach().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) + (tensor - tensor.detach())


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        self.number = 0
        {init}

    def forward(self, {arguments}):
        self.number += 1
        loop, number = under_way()
        n = len(loop.calls) if loop else 0
        late = Windows.count > 2  # from the first long window on
        {body}
        {reference}
'''
TANH = "return torch.tanh(x @ x.T) * self.scale"
ROWS = "return torch.logsumexp(x, 1).mean() * self.scale"
LINEAR = "return x @ self.w.T * self.scale"
WEIGHT = "self.w = nn.Parameter(torch.randn(64, 64))"
CHOICE = "y = {0}(x) @ {0}(self.w).T * self.scale; return y, y.argmax(1)"
NESTED = "return {'all': [x.argmax(1), None, torch.tanh(x @ x.T) * self.scale]}"
MEAN = "self.mean = self.mean * 0.9 + x.detach().mean() * 0.1; return torch.tanh(x) * self.scale + self.mean"
BUFFER = "self.register_buffer('mean', torch.zeros(()))"


class Trial(NamedTuple):
    """A candidate that claims some milliseconds, and what must come of it.

    Attributes:
        name: Its name.
        body: What it does before it computes.
        outcome: The status that it must get; ``UNCERTIFIED`` for one that passes without a speed.
        rule: The integrity rule, for ``CHEATED``.
        words: What the message must say.
        claim_ms: What its events are given to say.
        eager_ms: What eager's are.
        reference: How the problem computes.
        candidate: How the candidate does, where that differs.
        init: What both have besides a scale.
        inputs: Further inputs.
        arguments: Their names.
        declared: What the problem declares.
    """

    name: str
    body: str = ""
    outcome: str = "PASSED"
    rule: str | None = None
    words: str = ""
    claim_ms: float = 20.0
    eager_ms: float = 0.5
    reference: str = TANH
    candidate: str = ""
    init: str = ""
    inputs: str = ""
    arguments: str = "x"
    declared: str = ""


TRIALS = [
    Trial("honest"),
    Trial("honest_one_call", claim_ms=60.0, eager_ms=30.0),
    Trial("slow_and_says_so", "time.sleep(0.1 if n else 0)", claim_ms=300.0, eager_ms=330.0),
    Trial("slow_and_lies", "time.sleep(0.1 if n else 0)", "CHEATED", "clock", "at least", 1.0, 120.0),
    Trial(
        "dawdles_in_short_windows", "time.sleep({0: 0, 1: 0.2}.get(n, 0.1))", "CHEATED", "clock", "at least", 1.0, 120.0
    ),
    Trial("logs_its_calls", "print(self.number, n)"),
    Trial("skips", "if n and self.number % 2: return x.new_zeros(64, 64)", "WRONG_OUTPUT", None, "in a row"),
    Trial(
        "remembers",
        "if n and hasattr(self, 'kept'): return self.kept\n        self.kept = (torch.tanh(x @ x.T) * self.scale).detach()",
        "WRONG_OUTPUT",
        None,
        "in a row",
    ),
    Trial(
        "leaves_it_to_a_thread",
        "y = torch.empty(64, 64)\n        if n: threading.Thread(target=later, args=(y, x.detach().clone(), self.scale.detach())).start(); return y",
        "WRONG_OUTPUT",
        None,
        "in a row",
    ),
    Trial(
        "waits_for_its_thread",
        "y = torch.empty(64, 64)\n        if n and not torch.is_grad_enabled():\n            t = threading.Thread(target=y.copy_, args=(torch.tanh(x @ x.T) * self.scale,)); t.start(); t.join(); return y",
    ),
    Trial("empties_its_inputs", "x.data.mul_(0 if n else 1)", "CHEATED", "input_mutation", "input 0 of a timed call"),
    Trial(
        "empties_its_cotangents",
        "if n and torch.is_grad_enabled(): [c.data.zero_() for call in loop.calls for c in call.cotangents]; return Nothing.apply(x, self.scale)",
        "CHEATED",
        "input_mutation",
        "the cotangent of output 0",
    ),
    Trial(
        "a_little_coarse_when_timed",
        "if n: return torch.tanh(x @ x.T) * self.scale * 1.00001",
        "WRONG_OUTPUT",
        None,
        "in a timed call",
    ),
    Trial(
        "coarse_when_timed",
        "if n: return torch.tanh(x @ x.T) * self.scale * 1.01",
        "UNCERTIFIED",
        None,
        "deviate from eager's",
    ),
    Trial(
        "coarse_backward_when_timed",
        "s = self.scale\n        if n and torch.is_grad_enabled(): return torch.tanh(x @ x.T) * (1.00001 * s - 0.00001 * s.detach())",
        "WRONG_GRADIENT",
        None,
        "in a timed call",
    ),
    Trial(
        "coarse_in_late_windows",
        "if late: return torch.tanh(x @ x.T) * self.scale * 1.001",
        "UNCERTIFIED",
        None,
        "deviate from eager's",
    ),
    Trial(
        "constant_in_late_windows",
        "if late and not torch.is_grad_enabled(): return self.kept\n        self.kept = (torch.logsumexp(x, 1).mean() * self.scale).detach()",
        "UNCERTIFIED",
        None,
        "deviate from eager's",
        reference=ROWS,
    ),
    Trial(
        "remembers_a_gradient",
        "if n and torch.is_grad_enabled(): return Remembering.apply(x, self.w, self.scale)",
        "WRONG_GRADIENT",
        None,
        "in a row",
        reference=LINEAR,
        init=WEIGHT,
    ),
    Trial("fails_when_timed", "assert not n, 'no more'", "RUNTIME_ERROR", None, "no more"),
    Trial("another_form_when_timed", "if n: return x.new_zeros(2, 2)", "WRONG_OUTPUT", None, "expected [64, 64]"),
    Trial("a_long_plain_input", inputs=", list(range(8000))", arguments="x, numbers"),
    Trial("a_state_of_its_own", "", "UNCERTIFIED", None, "has buffers", reference=MEAN, init=BUFFER),
    Trial(
        "integers_that_rounding_decides",
        reference=CHOICE.format(""),
        candidate=CHOICE.format("cut"),
        init=WEIGHT,
        declared="PRECISION = '10-bit'",
    ),
    Trial("nested_results", reference=NESTED),
    Trial(
        "nested_results_skipped",
        "if n: return {'all': [x.argmax(1), None, x.new_zeros(64, 64)]}",
        "WRONG_OUTPUT",
        None,
        "in a row",
        reference=NESTED,
    ),
]


@pytest.fixture(scope="module")
def baseline(home: Path) -> Iterator[Baseline]:
    """Eager's worker, for all."""
    workers = Workers("cpu", tools_for("cpu", home).libraries, memory_bytes=None, confined=False)
    rival = Baseline(workers)
    yield rival
    rival.close()
    workers.close()


def series_of(sides: Any, claim_ms: float, rival_ms: float) -> Series:
    """What events would have said of these sides."""
    names = [side.name for side, _ in sides]
    found = {
        name: latency([ms, ms], [ms + 60.0] * 2)
        for name, ms in ((name, claim_ms if name == "candidate" else rival_ms) for name in names)
    }
    ratio = rival_ms / claim_ms
    return Series(found, {name: Interval(ratio, ratio, ratio) for name in names if name != "candidate"})


@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in TRIALS])
def test_timed_calls(
    one: Trial, tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def events(sides: Any, *_: Any, **__: Any) -> Series:
        return series_of(sides, one.claim_ms, one.eager_ms)

    monkeypatch.setattr(speed, "measure", events)
    monkeypatch.setattr(proof, "DRAWING_S", 1e9)  # or a busy machine has fewer calls in a window
    if one.outcome == "UNCERTIFIED":
        monkeypatch.setattr(
            speed, "SHORT_MS", 1e9
        )  # all calls are short: what is not certified stays out of these, too
    record = _judged(one, tmp_path, home, baseline)
    assert one.words in record.message
    if one.outcome == "UNCERTIFIED":
        assert record.status == "PASSED", record.message
        assert "is not certified and does not count" in record.message
        assert "forward" not in {**record.certified, **(record.speedup or {})}
        assert record.forward_ms is None
        assert set(record.samples["forward"]) == {"eager", "uncertified"}
        assert "forward" not in record.modes
        assert columns(ComparedRecord("it", record))[2:4] == ("-", "-")  # nor does `compare` count it
        return
    assert (record.status, record.rule) == (one.outcome, one.rule), record.message
    if record.status == "PASSED":
        assert set(record.certified) == set(record.speedup or {}) == {"forward", "forward_backward"}, record.message
        for found in record.certified.values():
            assert found["calls"] == (1 if one.eager_ms > 8 else 16)
            assert set(found["windows"]) == {"candidate", "eager", "storing"}


HELPER = """
import os, time
while True:
    time.sleep(0.0005)
    os.kill(os.getppid(), 18)
"""
BUSY = """
def busy():
    while True:
        pass


threading.Thread(target=busy, daemon=True).start()
"""
WAKES_ITS_PARENT = f"subprocess.Popen([sys.executable, '-S', '-c', {HELPER!r}], start_new_session=True)\n"


@pytest.fixture
def slow_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that say 200 ms of a candidate, since it has a thread that keeps it from its work."""
    monkeypatch.setattr(speed, "measure", lambda sides, *_, **__: series_of(sides, 200.0, 0.5))


@pytest.mark.usefixtures("slow_events")
@pytest.mark.parametrize("more", [BUSY, BUSY + WAKES_ITS_PARENT], ids=["alone", "with_a_helper"])
def test_a_busy_candidate_is_certified_where_it_sleeps_when_stopped(
    more: str, tmp_path: Path, home: Path, baseline: Baseline
) -> None:
    record = _judged(TRIALS[0], tmp_path, home, baseline, more)
    assert record.status == "PASSED", record.message
    for direction in ("forward", "forward_backward"):  # a helper that is stopped a moment too late has woken it
        woken = f"speed ({direction}) is not certified and does not count: the candidate used" in record.message
        assert (direction in record.certified) is not woken, record.message
        assert not woken or more != BUSY, record.message


def _wakes(monkeypatch: pytest.MonkeyPatch, is_woken: Callable[[], bool]) -> None:
    """Has a stopped worker go on at once where ``is_woken`` says so."""
    stop = WorkerHandle.pause

    def paused(worker: WorkerHandle) -> None:
        stop(worker)
        if is_woken():
            worker.resume()
            time.sleep(0.05)  # a quick judge would look before it has used more than it may

    monkeypatch.setattr(WorkerHandle, "pause", paused)


@pytest.mark.usefixtures("slow_events")
def test_a_window_that_a_candidate_did_not_sleep_through_is_run_again(
    tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = itertools.count()
    _wakes(monkeypatch, lambda: next(pauses) < 2)  # of the first window
    record = _judged(TRIALS[0], tmp_path, home, baseline, BUSY)
    assert record.status == "PASSED", record.message
    assert set(record.certified) == {"forward", "forward_backward"}, record.message


@pytest.mark.usefixtures("slow_events")
def test_who_is_awake_when_stopped_gets_no_certificate(
    tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wakes(monkeypatch, lambda: True)
    record = _judged(TRIALS[0], tmp_path, home, baseline, BUSY)
    assert (record.status, record.certified, record.speedup) == ("PASSED", {}, None)
    assert record.message.count("while it was stopped (most by thread 'p") == 2  # a process of Python's


@pytest.mark.parametrize(("without_ms", "status"), [(300.0, "PASSED"), (1.0, "CHEATED")])
def test_what_a_head_start_hides_is_timed_again_without(
    without_ms: float, status: str, tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def measured(sides: Any, *_: Any, gives_head_start: bool, **__: Any) -> Series:
        taken.append(gives_head_start)
        series = series_of(sides, 1.0 if gives_head_start else without_ms, 120.0)
        return replace(series, head_start_us=HEAD_START_US if gives_head_start else 0)

    monkeypatch.setattr(speed, "measure", measured)
    record = _judged(Trial("launches_slowly", "time.sleep(0.1 if n else 0)"), tmp_path, home, baseline)
    assert record.status == status, record.message
    assert taken == ([True, False] * 2 if status == "PASSED" else [True, False])
    assert record.forward_ms == (without_ms if status == "PASSED" else None)


def _refuted(by: str, sides: Any, *_: Any, **__: Any) -> Series:
    if by == "series":
        raise ClockRuleBroken("other work ran on the device", series_of(sides, 110.0, 120.0))
    return series_of(sides, 1.0, 120.0)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("is_refuted_by", ["windows", "series"])
def test_on_a_shared_gpu_a_refuted_time_is_not_counted(
    is_refuted_by: str, is_shared: bool, tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "process 7 also used the GPU" if is_shared else ""
    monkeypatch.setattr(speed, "measure", functools.partial(_refuted, is_refuted_by))
    monkeypatch.setattr(Conditions, "other_users", lambda _: words)
    record = _judged(Trial("takes_longer", "time.sleep(0.1 if n else 0)"), tmp_path, home, baseline)
    refuted = {"windows": "the worker claims 1 ms", "series": "other work ran on the device"}[is_refuted_by]
    if is_shared:
        assert (record.status, record.certified, record.speedup) == ("PASSED", {}, None), record.message
        assert record.samples.keys() == {"forward", "forward_backward"}
        assert f"not certified and does not count: {words}, and {refuted}" in record.message
    else:
        assert (record.status, record.rule) == ("CHEATED", "clock"), record.message
        assert record.message.startswith(refuted)


def test_a_refuted_time_is_not_counted_where_the_clock_is_only_reported(
    tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "measure", lambda sides, *_, **__: series_of(sides, 1.0, 120.0))
    monkeypatch.setattr(in_process, "Policy", functools.partial(Policy, rules={"clock": Mode.REPORT}))
    record = _judged(Trial("takes_longer", "time.sleep(0.1 if n else 0)"), tmp_path, home, baseline)
    assert (record.status, record.certified, record.speedup) == ("PASSED", {}, None), record.message
    assert "does not count: the rule `clock` is not enforced, and the worker claims 1 ms" in record.message
    told = [finding for finding in record.findings if finding.kind == "clock"]
    assert [finding.level for finding in told] == ["report"] * 2  # in either direction


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("time.sleep(0.1 if n else 0)", "PASSED"),
        ("return torch.tanh(x @ x.T) * self.scale * (1 + 1e-5 * bool(n))", "WRONG_OUTPUT"),
    ],
)
def test_calls_that_are_too_short_for_the_clock_are_not_counted_and_still_compared(
    body: str, status: str, tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "LEAST_RESOLUTION_MS", 1e9)
    monkeypatch.setattr(speed, "measure", lambda sides, *_, **__: series_of(sides, 1e-6, 120.0))
    record = _judged(Trial("short", body), tmp_path, home, baseline)
    assert (record.status, record.speedup) == (status, None), record.message
    words = "calls are too short for the judge's clock" if status == "PASSED" else "in a timed call"
    assert words in record.message


@pytest.mark.parametrize("is_refuted_by", ["windows", "series"])
def test_on_a_shared_gpu_a_result_that_is_wrong_when_timed_still_counts(
    is_refuted_by: str, tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "measure", functools.partial(_refuted, is_refuted_by))
    monkeypatch.setattr(Conditions, "other_users", lambda _: "process 7 also used the GPU")
    body = "s = self.scale * (1 + 1e-5 * bool(n)); time.sleep(0.1 if n else 0); return torch.tanh(x @ x.T) * s"
    record = _judged(Trial("coarse_and_slow", body), tmp_path, home, baseline)
    assert (record.status, record.speedup) == ("WRONG_OUTPUT", None), record.message
    assert "in a timed call" in record.message


def _judged(one: Trial, folder: Path, home: Path, baseline: Baseline, more: str = "") -> EvaluationRecord:
    told = {"init": one.init or "pass", "arguments": one.arguments}
    problem = PROBLEM.format(**told, declared=one.declared, reference=one.reference, inputs=one.inputs)
    text = SOLUTION
    for hole, what in {**told, "body": one.body or "pass", "reference": one.candidate or one.reference}.items():
        text = text.replace(f"{{{hole}}}", what)
    text = text.replace("class ModelNew", f"{more}\n\nclass ModelNew")
    return in_process.judged(problem, text, folder, home, baseline)

"""Tests several baselines in one series: compilation, caching, notes, and failures of one baseline.

Speed is measured on a GPU; the way there is the same on the CPU, where calls are timed by the system's clock. What
refutes a claim is the subject of ``test_timed_calls.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.executors.tools import tools_for
from harness.judge.process.workers import Workers
from harness.judge.timing import paired_timing as series
from harness.judge.timing import speed
from harness.judge.timing.rivals import Baseline
from harness.records.baselines import BASELINES, chosen
from harness.records.record import EvaluationRecord
from harness.timing.certificate import Certificate
from tests.judge import in_process

PROBLEM = """
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(48))

    def forward(self, x):
        {first}
        return torch.tanh(x @ x.T)[:, :48] * self.scale


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)  # threads that wait for each other take what others leave of the processors


def is_timed(queued=False):
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_name == "timed" and (frame.f_locals.get("head_start_us", 0) > 1000 or not queued):
            return True
        frame = frame.f_back
    return False


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(48))

    def forward(self, x):
        {candidate}
        return torch.tanh(x @ x.T)[:, :48] * self.scale
"""


@pytest.fixture(scope="module")
def baseline(home: Path) -> Iterator[Baseline]:
    """The baselines' worker, for all."""
    folder = home / "references"
    kept = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    workers = Workers("cpu", tools_for("cpu", home).libraries, memory_bytes=None, confined=False, environment=kept)
    rival = Baseline(workers)
    yield rival
    rival.close()
    workers.close()


@pytest.fixture(autouse=True)
def _no_claim_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes every claim for true: beside other work a processor's own times refute honest ones."""
    monkeypatch.setattr(Certificate, "accepts", lambda *_: True)
    monkeypatch.setattr(series, "BUSY_MS", math.inf)


def judged(
    folder: Path, home: Path, baseline: Baseline, names: tuple[str, ...], first: str, candidate: str = "pass"
) -> EvaluationRecord:
    """The record of a solution that is right, timed against these baselines.

    ``first`` begins the reference's forward, ``candidate`` the solution's.
    """
    problem, solution = PROBLEM.format(first=first), SOLUTION.replace("{candidate}", candidate)
    return in_process.judged(problem, solution, folder, home, baseline, names)


def test_all_baselines_share_the_rounds_of_a_series(
    tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "SHORT_MS", 0.0)
    names = chosen(["eager-tf32", "compile", "eager-graph"])
    first = judged(tmp_path, home, baseline, names, "pass")
    assert first.status == "PASSED", first.message
    assert first.policy["baselines"] == ["eager", "compile", "eager-graph", "eager-tf32"]
    assert list(first.baselines) == list(names)
    assert "CUDA" in first.baselines["eager-graph"]["failure"]
    assert first.baselines["compile"]["prepare_s"] > 0
    for name in ("eager", "compile", "eager-tf32"):
        told = first.baselines[name]
        assert told["forward_ms"] > 0 < told["forward_backward_ms"]
        assert set(told) - {"prepare_s"} == {"forward_ms", "forward_backward_ms", "speedup"}, told
        for ratio, low, high in told["speedup"].values():
            assert low <= ratio <= high
    for direction in ("forward", "forward_backward"):
        sides = first.samples[direction]
        assert set(sides) == {"candidate", "eager", "compile", "eager-tf32"}
        assert len({len(side["samples_ms"]) for side in sides.values()}) == 1
        assert first.speedup[direction] == first.baselines["eager"]["speedup"][direction][0]
    assert list(first.stages_s) == [
        *(
            "inputs",
            "worker",
            "trials",
            "baselines",
            "series",
            "certificate",
            "memory",
            "kernels",
            "robustness",
            "fitness",
        ),
    ]
    assert sum(first.stages_s.values()) <= first.total_s

    again = judged(tmp_path, home, baseline, names, "pass")
    assert again.status == "PASSED", again.message
    assert "prepare_s" not in again.baselines["compile"]  # it was there
    assert again.baselines["compile"]["forward_ms"] > 0


def test_code_that_is_not_compiled_is_told(tmp_path: Path, home: Path, baseline: Baseline) -> None:
    record = judged(tmp_path, home, baseline, ("eager", "compile"), "print('here')")
    assert record.status == "PASSED", record.message
    assert record.baselines["compile"]["note"].startswith("graph break: ")
    assert record.baselines["compile"]["speedup"]


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("raise RuntimeError('only eagerly')", "only eagerly"),
        ("os._exit(3)", "exit code 3"),
    ],
    ids=["raises", "ends_its_process"],
)
def test_a_baseline_that_fails_costs_the_others_nothing(
    act: str, words: str, tmp_path: Path, home: Path, baseline: Baseline
) -> None:
    first = f"if 'forward' in vars(self): {act}"  # so it is where it was compiled
    record = judged(tmp_path, home, baseline, ("eager", "compile", "eager-tf32"), first)
    assert record.status == "PASSED", record.message
    assert words in record.baselines["compile"]["failure"]
    assert "speedup" not in record.baselines["compile"]
    for name in ("eager", "eager-tf32"):
        assert set(record.baselines[name]["speedup"]) == {"forward", "forward_backward"}


def test_what_does_not_compile_is_not_tried_again(tmp_path: Path, home: Path, baseline: Baseline) -> None:
    note = tmp_path / "tried"
    first = f"if 'forward' in vars(self): open({str(note)!r}, 'a').write('x'); raise RuntimeError('never')"
    for _ in range(2):
        record = judged(tmp_path, home, baseline, ("eager", "compile"), first)
        assert "never" in record.baselines["compile"]["failure"]
    assert len(note.read_text()) <= 2  # dynamo may run a function twice; two attempts would be four


@pytest.mark.parametrize(("act", "words"), [("assert False, 'tired'", "tired"), ("os._exit(5)", "exit code 5")])
def test_a_baseline_that_fails_amid_a_series_is_left_out(
    act: str, words: str, tmp_path: Path, home: Path, baseline: Baseline
) -> None:
    first = (
        "self.calls = getattr(self, 'calls', 0) + 1\n"
        f"        if self.calls > 8 and torch.get_float32_matmul_precision() == 'high': {act}"
    )
    record = judged(tmp_path, home, baseline, ("eager", "eager-tf32"), first)
    assert record.status == "PASSED", record.message
    assert words in record.baselines["eager-tf32"]["failure"]
    assert set(record.speedup or {}) == {"forward", "forward_backward"}
    assert set(record.samples["forward"]) == {"candidate", "eager"}


def test_short_calls_are_measured_in_other_ways_too(
    tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "SHORT_MS", 1e9)
    record = judged(tmp_path, home, baseline, ("eager",), "pass")
    assert record.status == "PASSED", record.message
    modes = record.modes["forward"]
    assert modes["synchronised"]["overhead_ms"] > 0
    assert set(modes["queued"]) == {"candidate_ms", "eager_ms", "overhead_ms"}
    assert "CUDA" in modes["graph"]["failure"]  # nothing can be captured here, and that is nobody's fault
    assert set(record.speedup or {}) == {"forward", "forward_backward"}


def test_who_fails_in_a_queued_call_fails(
    tmp_path: Path, home: Path, baseline: Baseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "SHORT_MS", 1e9)
    record = judged(tmp_path, home, baseline, ("eager",), "pass", "assert not is_timed(queued=True), 'only in turn'")
    assert (record.status, record.speedup) == ("RUNTIME_ERROR", None)
    assert "only in turn" in record.message


def test_memory_that_is_short_beside_rivals_leaves_the_verdict(tmp_path: Path, home: Path, baseline: Baseline) -> None:
    candidate = "if is_timed(): raise torch.OutOfMemoryError('none is left')"
    record = judged(tmp_path, home, baseline, ("eager",), "pass", candidate)
    assert (record.status, record.baselines, record.speedup) == ("PASSED", {}, None)
    assert "not enough memory for the candidate and its baselines" in record.message
    assert "none is left" in record.message


def test_a_reference_that_does_not_run_as_a_baseline_leaves_the_verdict(
    tmp_path: Path, home: Path, baseline: Baseline
) -> None:
    record = judged(
        tmp_path, home, baseline, ("eager",), "assert 'harness.worker.main' not in __import__('sys').modules"
    )
    assert (record.status, record.baselines, record.speedup) == ("PASSED", {}, None)
    assert record.message.startswith("speed was not measured: eager PyTorch: ")


def test_names_of_baselines() -> None:
    assert chosen([]) == ("eager",)
    assert chosen(reversed(BASELINES)) == tuple(BASELINES)
    with pytest.raises(UsageError, match="Did you mean 'compile'"):
        chosen(["compil"])

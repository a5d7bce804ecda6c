"""Tests KernelBench's own verdict beside the harness's (``--preset kernelbench``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.judge.trials import kernelbench
from harness.judge.trials.kernelbench import compared, needed_tolerance, recorded
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.timing.statistics import latency

RECORD = EvaluationRecord(
    problem="relu",
    solution="mine",
    case="full",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="5eed",
    digest="d1",
    problem_digest="d2",
    precision_class=PrecisionClass.FP32,
)
CORRECT = {"correct": True, "tolerance": 1e-4, "error": 2e-5, "trials": 5}
PROBLEM = """\
import torch
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(size))
    def forward(self, x):
        return torch.tanh(x) * self.scale
def get_inputs():
    return [torch.rand(4, 32)]
def get_init_inputs():
    return [32]
"""
#: Its weights come from the same seed as the reference's, but no trial can set them.
OWN_STATE = """\
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("doubled", 2 * torch.SCALE(size))
    def forward(self, x):
        return torch.tanh(x) * self.doubled / 2
"""
ANSWER = PROBLEM.split("def get_inputs")[0].replace("class Model", "class ModelNew")
#: Answers with their status and KernelBench's word.
ANSWERS: dict[str, tuple[str, Status, bool]] = {
    "right": (ANSWER, Status.PASSED, True),
    "nearly": (ANSWER.replace("* self.scale", "* self.scale * 1.00003"), Status.WRONG_OUTPUT, True),
    "far": (ANSWER.replace("* self.scale", "* self.scale * 1.003"), Status.WRONG_OUTPUT, False),
    "one seed": (
        ANSWER.replace("* self.scale", "* self.kept").replace(
            "(size))", "(size)); self.kept = self.scale.detach().clone()"
        ),
        Status.WRONG_OUTPUT,
        True,
    ),
    "raises": (ANSWER.replace("return torch", "raise ValueError()"), Status.RUNTIME_ERROR, False),
    "own state": (OWN_STATE.replace("SCALE", "rand"), Status.LOAD_ERROR, True),
    "another own state": (OWN_STATE.replace("SCALE", "randn"), Status.LOAD_ERROR, False),
    "no code": ("I cannot.", Status.LOAD_ERROR, False),
}


@pytest.mark.parametrize("kind", ["near", "nan", "infinite", "empty"])
def test_the_needed_tolerance_is_that_of_allclose(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(100, generator=generator, dtype=torch.float64) * 10
    received = expected + 1e-3 * torch.randn(100, generator=generator, dtype=torch.float64)
    if kind == "nan":
        expected[3] = received[3] = float("nan")
    elif kind == "infinite":
        expected[3] = received[3] = float("inf")
    elif kind == "empty":
        expected, received = expected[:0], received[:0]
    needed = needed_tolerance(expected, received)
    if kind == "nan":
        assert needed == float("inf")
        return
    assert torch.allclose(expected, received, rtol=needed * 1.000001, atol=needed * 1.000001)
    if kind != "empty":
        assert not torch.allclose(expected, received, rtol=needed * 0.999999, atol=needed * 0.999999)


def test_large_tensors_are_compared_in_pieces_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(10, 10, generator=generator)
    received = expected + 1e-3 * torch.randn(10, 10, generator=generator)
    needed = needed_tolerance(expected, received)
    monkeypatch.setattr(kernelbench, "PIECE", 7)
    assert compared(expected, received, needed * 1.001) == (True, needed)
    assert compared(expected, received, needed * 0.9) == (False, needed)
    assert compared(expected[:0], received[:0], 1e-4) == (True, 0.0)


def test_the_speed_is_a_ratio_of_means() -> None:
    sides = {"candidate": [1.0, 1.0, 4.0], "eager": [4.0, 4.0, 4.0]}
    samples = {"forward": {side: vars(latency(times, times)) for side, times in sides.items()}}
    found = recorded(CORRECT, replace(RECORD, samples=samples))
    assert (found["runtime_ms"], found["eager_ms"], found["speedup"]) == (2.0, 4.0, 2.0)
    assert "speedup" not in recorded({**CORRECT, "correct": False}, replace(RECORD, samples=samples))
    assert recorded(CORRECT, RECORD) == CORRECT


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (Status.BUILD_ERROR, {"correct": False}),
        (Status.CRASHED, {"correct": False}),
        (Status.CHEATED, {}),  # KernelBench might not have noticed
        (Status.UNSUPPORTED, {}),
        (Status.HARNESS_ERROR, {}),
    ],
)
def test_a_candidate_that_never_came_so_far(status: Status, found: dict[str, Any]) -> None:
    assert recorded({}, replace(RECORD, status=status)) == found


@pytest.mark.slow
def test_both_verdicts_stand_in_the_record_and_in_the_table(harness: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "1_Tanh.py").write_text(PROBLEM)
    (tmp_path / "runs").mkdir()
    for number, (text, _, _) in enumerate(ANSWERS.values()):
        (tmp_path / "runs" / f"1_Tanh_sample_{number}.py").write_text(text)
    (tmp_path / "runs" / "eval_results.json").write_text("{}")  # KernelBench's own results are no answer
    command = ("evaluate", "--answers", tmp_path / "runs", "--problem", tmp_path / "problems", "--device", "cpu")
    ran = harness(*command, "--preset", "kernelbench", "--json")
    assert ran.code == 1
    assert "eval_results.json is not read" in ran.err
    for row, (_, status, is_correct) in zip(ran.rows, ANSWERS.values(), strict=True):
        assert (row["status"], row["kernelbench"]["correct"]) == (status, is_correct), row
        assert row["policy"]["preset"] == "kernelbench"
        assert row["policy"]["forward_only"]
    assert 2e-6 < ran.rows[1]["kernelbench"]["error"] < 1e-4 < ran.rows[2]["kernelbench"]["error"]
    table = harness(*command, "--preset", "kernelbench").out
    assert "incorrect (" in table
    assert "1_Tanh/sample_1" in table
    assert "problems, kernelbench 1 1 8 4 0 " in " ".join(table.split())
    plain = harness(*command, "--forward-only", "--json")
    assert [row["kernelbench"] for row in plain.rows] == [{}] * len(ANSWERS)

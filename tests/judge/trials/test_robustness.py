"""Tests calls beyond a problem's own inputs: a candidate that fails there gets a finding and keeps its verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.records.record import EvaluationRecord, Finding, Status
from tests.judge.in_process import judged

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x - 0.5)


def get_inputs():
    return [torch.{draw}(6, 33)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
MEAN_SQUARE = "x.pow(2).mean(-1, keepdim=True)"
RIGHT = "return torch.relu(x - 0.5)"
Judged = Callable[..., EvaluationRecord]


@pytest.fixture
def record(tmp_path: Path, home: Path) -> Judged:
    """The record of a candidate's body."""

    def run(body: str, draw: str = "rand") -> EvaluationRecord:
        return judged(PROBLEM.format(draw=draw), SOLUTION.format(body=body), tmp_path, home)

    return run


def found(record: EvaluationRecord) -> list[Finding]:
    return [finding for finding in record.findings if finding.kind == "robustness"]


def test_an_honest_candidate_has_no_finding(record: Judged) -> None:
    one = record(RIGHT)
    assert (one.status, found(one)) == (Status.PASSED, [])
    checks = ("signs", "batch", "larger batch", "layout", "not finite", "large", "ends", "zeros")
    mode = one.robustness.pop("evaluation mode")
    assert mode.startswith("left out: the reference returns the same")
    assert one.robustness.pop("small") == "left out: the reference's output would be zero everywhere"
    assert one.robustness == dict.fromkeys(checks, "passed")
    assert "robustness" in one.stages_s


@pytest.mark.parametrize(
    ("body", "check", "words"),
    [
        pytest.param("return torch.relu(x.abs() - 0.5)", "signs", "both signs", id="absolute"),
        pytest.param("return torch.relu(x - 0.5) * (len(x) > 5)", "batch", "half of the batch", id="batch"),
        pytest.param("return torch.relu(x.as_strided((len(x), 33), (33, 1)) - 0.5)", "layout", "reverse", id="layout"),
        pytest.param("return torch.relu(x - 0.5) * (x / x).detach()", "zeros", "all of them NaN", id="divided_by_zero"),
        pytest.param("return torch.relu(x - 0.5) * (x < 64)", "large", "128 times as large", id="large"),
        pytest.param("return torch.relu(x - 0.5) + 0 * x.sum()", "not finite", "finite in eager's", id="spread_nan"),
        pytest.param("return torch.fmax(x - 0.5, torch.zeros_like(x))", "not finite", "NaN", id="swallowed_nan"),
        pytest.param("assert len(x) > 5\n        " + RIGHT, "batch", "RUNTIME_ERROR", id="refused_batch"),
        pytest.param("return torch.relu(x - 0.5) * (len(x) < 7)", "larger batch", "twice the batch", id="larger_batch"),
    ],
)
def test_what_fails_beyond_the_problem_s_inputs_is_a_finding(record: Judged, body: str, check: str, words: str) -> None:
    one = record(body)
    assert one.status is Status.PASSED, one.message
    (finding,) = found(one)
    assert finding.level == "report"
    assert words in finding.message
    assert finding.remedy
    assert [name for name, end in one.robustness.items() if end.startswith("failed: ")] == [check]


def test_a_candidate_that_refuses_other_layouts_has_no_finding(record: Judged) -> None:
    one = record("assert x.is_contiguous(), 'contiguous inputs only'\n        " + RIGHT)
    assert (one.status, found(one)) == (Status.PASSED, [])
    assert one.robustness["layout"].startswith("refused: ")
    assert one.robustness["not finite"] == "passed"


def test_a_check_that_ends_the_process_leaves_the_verdict(record: Judged) -> None:
    one = record("import os\n        if len(x) != 6: os._exit(3)\n        " + RIGHT)
    assert one.status is Status.PASSED
    assert "CRASHED" in found(one)[0].message


@pytest.mark.parametrize(
    ("body", "end"),
    [
        pytest.param("x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)", "passed", id="right"),
        pytest.param("x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-6)", "failed: ", id="beside_the_root"),
    ],
)
def test_an_eps_that_is_too_small_to_count_in_a_draw_counts_in_a_check(
    tmp_path: Path, home: Path, body: str, end: str
) -> None:
    problem = PROBLEM.format(draw="randn").replace("torch.relu(x - 0.5)", f"x / torch.sqrt({MEAN_SQUARE} + 1e-6)")
    one = judged(problem, SOLUTION.format(body=f"return {body}"), tmp_path, home)
    assert one.status is Status.PASSED
    assert one.robustness.pop("small").startswith(end)
    assert [finding.message[:35] for finding in found(one)] == ["called with inputs 1/1024 times as "] * (
        end != "passed"
    )


def test_inputs_of_both_signs_are_left_as_they_are(record: Judged) -> None:
    assert record(RIGHT, "randn").robustness["signs"].startswith("left out: ")


@pytest.mark.parametrize("few", [1 << 16, 0], ids=["small", "large"])
def test_checks_end_when_they_have_taken_long(record: Judged, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr("harness.judge.trials.robustness.FEW_ELEMENTS", few)
    monkeypatch.setattr(f"harness.judge.trials.robustness.{'ENOUGH_S' if few else 'ENOUGH_OF_LARGE_S'}", 0)
    ends = list(record(RIGHT).robustness.values())
    assert ends.count("left out: those before it took longer than 0 s") == len(ends) - 1 == 9


def test_a_large_case_has_every_check_that_is_quick(record: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.judge.trials.robustness.FEW_ELEMENTS", 0)
    monkeypatch.setattr("harness.judge.trials.robustness.ENOUGH_OF_LARGE_S", 60)
    ends = record(RIGHT).robustness
    assert {end for name, end in ends.items() if name not in ("evaluation mode", "small")} == {"passed"}


NORMED = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(33)

    def forward(self, x):
        return self.bn(x) * 2


def get_inputs():
    return [torch.randn(6, 33)]


def get_init_inputs():
    return []
"""
EVALUATES = "from torch.nn.functional import batch_norm\n" + NORMED.replace("class Model(", "class ModelNew(").replace(
    "return self.bn(x) * 2",
    """bn, trains = self.bn, self.training
        bn.num_batches_tracked += trains
        return {body}""",
)
WITH = "batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, {trains}, 0.1, bn.eps) * 2"


@pytest.mark.parametrize(
    ("body", "end"),
    [
        pytest.param(WITH.format(trains="trains"), "passed", id="right"),
        pytest.param(WITH.format(trains="True"), "failed: buffer bn.running_mean: ", id="statistics_of_the_batch"),
        pytest.param(
            WITH.format(trains="trains") + " if trains else bn(x.detach()) * 2",
            "failed: gradient of x under the 'normal' cotangent: no gradient",
            id="without_an_input_s_gradient",
        ),
        pytest.param(
            WITH.format(trains="trains") + " if trains else (bn(x) * 2).detach()",
            "failed: it ended with NO_GRADIENT: ",
            id="without_gradients",
        ),
    ],
)
def test_evaluation_mode_is_tried_where_the_reference_differs_in_it(
    tmp_path: Path, home: Path, body: str, end: str
) -> None:
    one = judged(NORMED, EVALUATES.format(body=body), tmp_path, home)
    assert one.status is Status.PASSED, one.message
    assert one.robustness["evaluation mode"].startswith(end)
    told = [finding.message for finding in found(one)]
    assert len(told) == end.startswith("failed")
    assert all(".eval()" in words for words in told)


def test_a_result_without_a_batch_may_be_as_long_as_two(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(draw="randn").replace("return torch.relu(x - 0.5)", "return x.T @ x")
    problem = problem.replace("(6, 33)", "(6, 12)")
    one = judged(problem, problem.replace("class Model(", "class ModelNew("), tmp_path, home)
    assert one.status is Status.PASSED
    assert one.robustness["larger batch"].startswith("left out: ")


def test_indices_that_rounding_decides_may_be_eager_s_own(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(draw="randn").replace("torch.relu(x - 0.5)", "torch.sigmoid(x).argmax(1)")
    problem = problem.replace("(6, 33)", "(64, 33)")
    right = problem.replace("class Model(", "class ModelNew(")
    one = judged(problem, right, tmp_path, home)
    assert (one.status, found(one), one.robustness["large"]) == (Status.PASSED, [], "passed")
    other = judged(problem, right.replace("torch.sigmoid(x)", "x"), tmp_path, home)
    assert other.status is Status.PASSED
    assert other.robustness["large"].startswith("failed: ")


OFFSETS = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, offsets):
        return torch.segment_reduce(x, "max", offsets=offsets, axis=0)


def get_inputs():
    inner = torch.randperm(29)[:5].sort().values + 1
    return [torch.randn(30, 4), torch.cat([torch.tensor([0]), inner, torch.tensor([30])])]


def get_init_inputs():
    return []
"""


def test_offsets_of_a_whole_batch_are_not_given_beside_half_of_it(tmp_path: Path, home: Path) -> None:
    one = judged(OFFSETS, OFFSETS.replace("class Model(", "class ModelNew("), tmp_path, home)
    assert (one.status, found(one)) == (Status.PASSED, [])
    assert "may point beyond half of the batch" in one.robustness["batch"]

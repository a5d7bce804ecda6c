"""Tests that elements far larger than all others do not hide the errors of these."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.judge.reference.equivalence import deviation, giants_of, magnitude, relative
from harness.records.record import Status
from tests.judge.in_process import judged

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(9, 65)

    def forward(self, x, mask):
        y = self.linear(x)
        return {result}


def get_inputs():
    return [torch.randn(5, 9), torch.rand(5, 65) < 0.5]


def get_init_inputs():
    return []
"""
RESULTS = (
    "y.masked_fill(mask, -1e9)",
    "y.masked_fill(mask, torch.finfo(y.dtype).min)",
    "y - 1e9 * mask",
    "y.masked_fill(mask, -1e9).masked_fill(x[:, :1] > 0.5, torch.finfo(y.dtype).min)",
    "y - 1e9 * mask - 1e9 * (torch.arange(65, device=x.device) < 9)",
    "y - 1e9 * mask - 3e6 * (torch.arange(65, device=x.device) < 9)",
)


@pytest.mark.parametrize("result", RESULTS)
def test_zeros_beside_a_mask_fail_and_the_answer_passes(result: str, tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(result=result)
    right = problem.replace("Model(", "ModelNew(")
    assert judged(problem, right, tmp_path, home).status is Status.PASSED
    wrong = right.replace("y = self.linear(x)", "y = self.linear(x); y = y - y.detach()")
    assert judged(problem, wrong, tmp_path, home).status is Status.WRONG_OUTPUT


@pytest.mark.parametrize("result", RESULTS)
def test_a_report_points_at_wrong_elements_and_not_at_a_mask_s_rounding(
    result: str, tmp_path: Path, home: Path
) -> None:
    problem = PROBLEM.format(result=result)
    wrong = problem.replace("Model(", "ModelNew(").replace("y = self.linear(x)", "y = 1.01 * self.linear(x)")
    (report,) = judged(problem, wrong, tmp_path, home).outputs
    assert abs(report.expected or 1e9) < 100
    assert "received is 1.01 times expected" in report.pattern


@pytest.mark.parametrize("others", [(-1e9,), (-1e9, -3e4), (3e4, -2.9e4)])
def test_giants_of_each_size_are_told_apart(others: tuple[float, ...]) -> None:
    largest = torch.finfo(torch.float32).min
    exact = torch.cat([torch.full((4,), one) for one in (largest, *others)] + [torch.linspace(0.1, 1.5, 60)]).double()
    giants = giants_of(exact)
    assert giants is not None
    assert float(giants.shrunk(exact, exact).abs().max()) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "rest", [torch.zeros(60), torch.randn(60) * 1e6, torch.full((60,), 1e-7), torch.linspace(-9e8, -8e8, 60)]
)
def test_there_are_none_without_a_gap_or_others(rest: torch.Tensor) -> None:
    assert giants_of(torch.cat([torch.full((4,), -1e9), rest]).double()) is None


def test_a_wrong_giant_is_as_wrong_as_another_element() -> None:
    exact = torch.cat([torch.full((4,), -1e9), torch.ones(60)]).double()
    giants = giants_of(exact)
    assert giants is not None
    received = exact.clone()
    received[0] *= 1.01
    assert relative(deviation(received, exact, giants=giants), magnitude(exact, giants)).maximum > 0.005

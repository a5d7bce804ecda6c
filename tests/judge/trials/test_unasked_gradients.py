"""Tests gradients that a candidate gives where the reference gives none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ProblemError
from tests.judge.in_process import judged

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4))
        self.fixed = torch.nn.Parameter(torch.randn(4), requires_grad=False)

    def forward(self, x, target, mask):
        return (x * self.w + self.fixed - target.detach()).square() * (mask > 0)


def get_inputs():
    return [torch.randn(16, 4), torch.randn(16, 4), torch.randn(16, 4)]


def get_init_inputs():
    return []
"""
ZEROS = """

class Own(torch.autograd.Function):
    @staticmethod
    def forward(context, x, target):
        context.save_for_backward(x - target)
        return (x - target).square()

    @staticmethod
    def backward(context, gradient):
        (difference,) = context.saved_tensors
        return 2 * difference * gradient, torch.zeros_like(difference)
"""


def row_of(problem: str, change: tuple[str, str], folder: Path, evaluate_row: Callable[..., Any]) -> dict[str, Any]:
    """The result of a candidate whose text is the problem's, with a change."""
    (folder / "problem.py").write_text(problem)
    text = problem.replace("class Model(", "class ModelNew(")
    (folder / "answer.py").write_text(text.replace(*change) if change[0] else text)
    row: dict[str, Any] = evaluate_row(folder / "answer.py", folder / "problem.py")
    return row


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (("", ""), "PASSED", ""),
        (("target.detach()", "target"), "WRONG_GRADIENT", "gradient of target: the reference gives it none"),
        ((", requires_grad=False", ""), "WRONG_GRADIENT", "gradient of fixed: the reference gives it none"),
        (("* (mask > 0)", "* torch.sigmoid(1e9 * mask)"), "PASSED", ""),  # saturated: its gradient is zero
        (("self.w = ", "self.own = torch.nn.Parameter(torch.zeros(())); self.w = "), "PASSED", ""),
        (("(x * self.w + self.fixed - target.detach()).square()", "Own.apply(x * self.w + self.fixed, target)"),
         "PASSED", ""),
    ],
    ids=["same", "stop-gradient", "frozen", "zero", "own-parameter", "zeros-returned"],
)  # fmt: skip
def test_a_gradient_where_the_reference_has_none_is_wrong(
    tmp_path: Path, evaluate_row: Callable[..., Any], change: tuple[str, str], status: str, words: str
) -> None:
    row = row_of(PROBLEM + ZEROS, change, tmp_path, evaluate_row)
    assert (row["status"], words in row["message"]) == (status, True), row["message"]


TWO_OUTPUTS = """
import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, x, w):
        context.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(context, gradient):
        x, w = context.saved_tensors
        return gradient * w, (gradient * x).sum(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = Scaled.apply(x, self.w)
        return y, y.mean().reshape(1)


def get_inputs():
    return [torch.randn(3, 4)]


def get_init_inputs():
    return []
"""
SOMETIMES = """
        Scaled.calls = getattr(Scaled, "calls", 0) + 1
        if Scaled.calls % 3 == 1:
            return gradient * w, None
        return gradient * w, (gradient * x).sum(0)
"""


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (("", ""), "PASSED", ""),  # the cotangent of an output that counts for nothing has one element, and no stride
        (
            ("\n        return gradient * w, (gradient * x).sum(0)\n", SOMETIMES),
            "WRONG_GRADIENT",
            "no gradient, but the",
        ),
    ],
    ids=["one-element", "none-at-first"],
)
def test_gradients_of_two_outputs(
    tmp_path: Path, evaluate_row: Callable[..., Any], change: tuple[str, str], status: str, words: str
) -> None:
    row = row_of(TWO_OUTPUTS, change, tmp_path, evaluate_row)
    assert (row["status"], words in row["message"]) == (status, True), row["message"]


ROUTED = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(8))

    def forward(self, x):
        return self.experts[int(x.abs().sum() * 100) % 8](x)


def get_inputs():
    return [torch.randn(16, 4)]


def get_init_inputs():
    return []
"""


def test_a_parameter_that_some_draws_leave_out_is_the_problem_s_fault(tmp_path: Path, home: Path) -> None:
    with pytest.raises(
        ProblemError, match=r"gives experts\.\d\.\w+ a gradient in one draw and not in another.*empty tensor"
    ):
        judged(ROUTED, ROUTED.replace("class Model(", "class ModelNew("), tmp_path, home)

"""Tests what errors of a gradient under the normal cotangent are divided by: hardly more than its size there."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from harness.judge.reference.equivalence import magnitude
from harness.judge.reference.reference_errors import MOST_AMPLIFIED, scale_under
from harness.records.record import Status
from tests.judge.in_process import judged

#: Under a constant cotangent the weight's gradient sums many positive numbers, and is a hundred times as large as
#: under a normal one.
SOURCE = """
import torch
import torch.nn as nn


def cut(x):  # as TF32 does
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(context, x, w):
        context.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(context, gradient):
        x, w = context.saved_tensors
        return gradient @ w, {gradient}


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return Linear.apply(x, self.w)


def get_inputs():
    return [torch.rand(20000, 8)]


def get_init_inputs():
    return []
"""
FULL, CUT = "gradient.t() @ x", "cut(gradient).t() @ cut(x)"


@pytest.mark.parametrize(
    ("gradient", "status"),
    [
        (FULL, Status.PASSED),
        ("(gradient.flip(0).t() @ x.flip(0))", Status.PASSED),  # another order of summation
        (CUT, Status.WRONG_GRADIENT),
    ],
    ids=["full", "another order", "cut"],
)
def test_operands_of_a_lower_class_are_wrong(gradient: str, status: Status, tmp_path: Path, home: Path) -> None:
    problem = SOURCE.format(kind="Model", gradient=FULL)
    record = judged(problem, SOURCE.format(kind="ModelNew", gradient=gradient), tmp_path, home)
    assert record.status is status, record.message


def test_a_sample_whose_cotangents_cancel_by_chance_is_judged_as_the_others_are() -> None:
    sizes = torch.tensor([5.0, 5.0, 0.001, 5.0], dtype=torch.float64)[:, None].expand(4, 3)
    scales = {"normal": magnitude(sizes), "ones": magnitude(torch.full((4, 3), 100.0, dtype=torch.float64))}
    first, _, third, _ = scale_under("normal", scales).slice_rms.tolist()
    assert first == pytest.approx(MOST_AMPLIFIED * 5)
    assert third == pytest.approx(MOST_AMPLIFIED * 5 * math.sqrt(3 / 4))  # the RMS over all samples


FLIPS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randint(-3, 4, (24, 400)) * 0.1)
        self.mixing = nn.Parameter(torch.randn(400, 8))

    def forward(self, x):
        return torch.relu(x @ self.weight) @ self.mixing * SCALE


def get_inputs():
    return [torch.randint(-3, 4, (16, 24)) * 0.1]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("scale", [2.0**-13, 1.0, 2.0**13])
def test_branch_flips_are_excused_under_a_cotangent_of_any_size(tmp_path: Path, home: Path, scale: float) -> None:
    """Many sums are zero but for their rounding, which decides on which side of ReLU's kink eager sees them.

    The cotangent that is the output is scaled to be near 1, and so must be what flips change under it.
    """
    problem = FLIPS.replace("SCALE", repr(scale))
    one = judged(problem, problem.replace("class Model(", "class ModelNew("), tmp_path, home)
    assert one.status is Status.PASSED, one.message
    assert one.kinks["remaining"] > 100


MIXED = """class Mixed(torch.autograd.Function):
    @staticmethod
    def forward(context, hidden, mixing):
        context.save_for_backward(hidden, mixing)
        return hidden @ mixing * 8192.0

    @staticmethod
    def backward(context, gradient):
        hidden, mixing = context.saved_tensors
        wrong = {error} * gradient.mean() * hidden.square().sum(0).sqrt().reshape(-1, 1)
        return gradient @ mixing.T * 8192.0, (hidden.T @ gradient + wrong) * 8192.0


class ModelNew("""


@pytest.mark.parametrize(("error", "status"), [(0.0, Status.PASSED), (4e-5, Status.WRONG_GRADIENT)])
def test_a_large_output_hides_no_error_under_another_cotangent(
    tmp_path: Path, home: Path, error: float, status: Status
) -> None:
    """The error is as large as ten budgets under ones, and a fraction of one under the normal cotangent."""
    solution = FLIPS.replace("class Model(", MIXED.format(error=error))
    solution = solution.replace(
        "torch.relu(x @ self.weight) @ self.mixing * SCALE", "Mixed.apply(torch.relu(x @ self.weight), self.mixing)"
    )
    one = judged(FLIPS.replace("SCALE", "8192.0"), solution, tmp_path, home)
    assert one.status is status, one.message
    assert ("gradient of mixing under the 'ones' cotangent" in one.message) == (status is Status.WRONG_GRADIENT)

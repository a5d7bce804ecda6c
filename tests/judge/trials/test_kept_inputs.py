"""Tests what a weight's gradient takes from an input that is the result of another operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

WEIGHTED = """
import ctypes
import torch
import torch.nn as nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        {kept}
        return x @ weight

    @staticmethod
    def backward(ctx, grad):
        gradient = None
        if ctx.needs_input_grad[1]:
            {taken}
            gradient = x.T @ grad
        return grad @ ctx.saved_tensors[0].T, gradient


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, 17))

    def forward(self, x):
        return Product.apply(x, self.weight)


def get_inputs():
    return [torch.randn(12, 9)]


def get_init_inputs():
    return []
"""
SAVED = {"kept": "ctx.save_for_backward(weight, x)", "taken": "x = ctx.saved_tensors[1]"}
BY_ADDRESS = {
    "kept": "ctx.save_for_backward(weight); ctx.address = x.data_ptr()",
    "taken": "x = torch.frombuffer((ctypes.c_float * 108).from_address(ctx.address), dtype=torch.float32).view(12, 9)",
}
LEAVES_ALONE = {"kept": "ctx.save_for_backward(weight, x * x.is_leaf)", "taken": SAVED["taken"]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(SAVED, Status.PASSED, id="saved"),
        pytest.param(BY_ADDRESS, Status.WRONG_GRADIENT, id="by_address"),
        pytest.param(LEAVES_ALONE, Status.WRONG_GRADIENT, id="leaves_alone"),
    ],
)
def test_a_weight_s_gradient_needs_an_input_that_is_no_leaf(
    tmp_path: Path, home: Path, body: dict[str, str], status: Status
) -> None:
    problem = WEIGHTED.format(kind="Model", **SAVED)
    record = judged(problem, WEIGHTED.format(kind="ModelNew", **body), tmp_path, home)
    assert record.status is status, record.message
    assert ("results of other operators" in record.message) == (status is not Status.PASSED)

"""Tests that an input's gradient is judged under every kind of cotangent, beside parameters too."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn as nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.sin(x) * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        rows = grad if grad.stride(-1) != 1 else grad.as_strided(grad.shape, (grad.shape[1], 1))
        clipped = grad.clamp(-100, 100)
        return {of_input} * torch.cos(x) * weight, ({of_weight} * torch.sin(x)).sum(0)


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(17))

    def forward(self, x):
        return Scaled.apply(x, self.weight)


def get_inputs():
    return [torch.randn(12, 17)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("of_input", "of_weight", "status"),
    [
        ("grad", "grad", Status.PASSED),
        ("rows", "grad", Status.WRONG_GRADIENT),
        ("grad", "rows", Status.WRONG_GRADIENT),
        ("clipped", "grad", Status.WRONG_GRADIENT),
        ("grad", "clipped", Status.WRONG_GRADIENT),
    ],
)
def test_a_backward_is_right_for_each_cotangent(
    tmp_path: Path, home: Path, of_input: str, of_weight: str, status: Status
) -> None:
    problem = SOURCE.format(kind="Model", of_input="grad", of_weight="grad")
    record = judged(problem, SOURCE.format(kind="ModelNew", of_input=of_input, of_weight=of_weight), tmp_path, home)
    assert record.status is status, record.message

"""Tests that a mask's large negative number does not hide which element a branch takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.judge.reference.kink_modes import usual_limit
from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn as nn


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 32, bias=False)

    def forward(self, x, mask):
        y = torch.tanh(self.linear(x))
        y = {masked}
        return {taken}


def get_inputs():
    mask = torch.rand(8, 24) > 0.7
    mask[0] = True  # a row without any element that counts
    return [torch.randn(8, 24, 16), mask]


def get_init_inputs():
    return []
"""
MASKED = {
    "filled": "y.masked_fill(mask[..., None], -1e9)",
    "added": "y + mask[..., None] * -1e9",
    "largest": "y.masked_fill(mask[..., None], -3.4e38)",
}
MAXIMUM = "y.max(1).values"
WRONG = {
    "zero": ("(m := y.max(1).values).detach() + 0 * m.clamp(min=-2)", Status.WRONG_GRADIENT),
    "second": (
        "y.max(1).values.detach() + (t := y.topk(2, 1).values[:, 1].clamp(min=-2)) - t.detach()",
        Status.WRONG_GRADIENT,
    ),
    "without_the_last": ("y[:, :-1].max(1).values", Status.WRONG_OUTPUT),
}


def status(tmp_path: Path, home: Path, masked: str, taken: str) -> Status:
    problem = SOURCE.format(kind="Model", masked=MASKED[masked], taken=MAXIMUM)
    return judged(problem, SOURCE.format(kind="ModelNew", masked=MASKED[masked], taken=taken), tmp_path, home).status


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("masked", MASKED)
def test_another_element_than_the_maximum_is_wrong(tmp_path: Path, home: Path, masked: str, wrong: str) -> None:
    taken, expected = WRONG[wrong]
    assert status(tmp_path, home, masked, taken) == expected


@pytest.mark.parametrize("masked", MASKED)
def test_the_maximum_passes(tmp_path: Path, home: Path, masked: str) -> None:
    assert status(tmp_path, home, masked, MAXIMUM) == Status.PASSED


def test_what_is_usual_depends_on_small_elements() -> None:
    values = torch.linspace(-1.0, 1.0, 10_001, dtype=torch.float64)
    assert values.abs().max() < usual_limit(values) < 1e3
    masked = torch.where(torch.arange(10_001) % 10 == 0, values, -1e9)  # nine of ten
    assert 1.0 < usual_limit(masked) < 1e6
    assert usual_limit(torch.zeros(3)) == float("inf")

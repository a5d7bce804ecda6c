"""Tests that samples of zeros, which lie within rounding of an eps, are judged and not redrawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn.functional as F


class {kind}(torch.nn.Module):
    def forward(self, x, y):
        return {result}


def get_inputs():
    return [torch.randn(40, 6) * (torch.rand(40, 1) < 0.75), torch.randn(40, 6)]


def get_init_inputs():
    return []
"""
NORMALISED, SIMILAR = "F.normalize(x, dim=1) + y", "F.cosine_similarity(x, y, dim=1)"
CHOSEN = "torch.where(x.norm(dim=1, keepdim=True) > 1e-6, x * y, y)"
NORM = "x.norm(dim=1, keepdim=True)"
SQUARES = "x.square().sum(1, keepdim=True)"


@pytest.mark.parametrize(
    ("reference", "candidate", "status"),
    [
        pytest.param(NORMALISED, f"x / {NORM}.clamp(min=1e-12) + y", Status.PASSED, id="normalised"),
        pytest.param(NORMALISED, f"x / {NORM} + y", Status.WRONG_OUTPUT, id="normalised_without_eps"),
        # The derivative of the root is infinite at zero, and infinity times zero NaN.
        pytest.param(
            NORMALISED, f"x / {SQUARES}.sqrt().clamp(min=1e-12) + y", Status.WRONG_GRADIENT, id="gradient_of_nan"
        ),
        pytest.param(
            SIMILAR,
            "(x * y).sum(1) / (x.norm(dim=1).clamp(min=1e-8) * y.norm(dim=1).clamp(min=1e-8))",
            Status.PASSED,
            id="similar",
        ),
        pytest.param(
            SIMILAR, "(x * y).sum(1) / (x.norm(dim=1) * y.norm(dim=1))", Status.WRONG_OUTPUT, id="similar_without_eps"
        ),
        pytest.param(CHOSEN, f"torch.where({SQUARES} > 1e-12, x * y, y)", Status.PASSED, id="chosen"),
        pytest.param(CHOSEN, "x * y", Status.WRONG_OUTPUT, id="the_other_branch"),
    ],
)
def test_a_sample_of_zeros_is_judged(
    tmp_path: Path, home: Path, reference: str, candidate: str, status: Status
) -> None:
    problem = SOURCE.format(kind="Model", result=reference)
    record = judged(problem, SOURCE.format(kind="ModelNew", result=candidate), tmp_path, home)
    assert record.status is status, record.message

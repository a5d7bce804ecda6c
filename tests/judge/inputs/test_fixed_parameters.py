"""Tests parameters that every seed constructs alike: a candidate must use those that it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
import torch

n = 5


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter({made})

    def forward(self, x):
        return torch.tanh(x @ self.w)


def get_inputs():
    return [torch.randn(3, n)]


def get_init_inputs():
    return []
"""
IGNORES = "torch.tanh(x @ ({made} + 0 * self.w))"
HALF_AND_HALF = "torch.cat([torch.zeros(n, 2), torch.ones(n, 3)], 1)"


@pytest.mark.parametrize("made", ["torch.eye(n)", "torch.arange(25.0).view(n, n).add(1).log()", HALF_AND_HALF])
@pytest.mark.parametrize(("used", "status"), [("torch.tanh(x @ self.w)", "PASSED"), (IGNORES, "WRONG_OUTPUT")])
def test_a_value_that_stands_in_the_candidate_s_text_is_wrong(
    tmp_path: Path, evaluate_row: Callable[..., Any], made: str, used: str, status: str
) -> None:
    problem, answer = tmp_path / "problem.py", tmp_path / "answer.py"
    problem.write_text(PROBLEM.replace("{made}", made))
    text = problem.read_text().replace("class Model(", "class ModelNew(")
    answer.write_text(text.replace("torch.tanh(x @ self.w)", used.replace("{made}", made)))
    assert evaluate_row(answer, problem)["status"] == status

"""Tests that a problem is refused whose model no candidate could follow from call to call."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ProblemError
from harness.records.record import Status
from tests.judge.in_process import judged

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(9, 9)
        self.state = torch.zeros(5, 9)

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(5, 9)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("self.state = torch.tanh(self.linear(x) + self.state); return self.state", "has other results"),
        ("self.state = torch.tanh(self.linear(x) + 0 * self.state); return self.state", "has no backward of its own"),
    ],
)
def test_a_state_that_a_second_call_depends_on_is_refused(forward: str, words: str, tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(forward=forward)
    with pytest.raises(ProblemError, match=f"keeps self.state from one forward to the next.*{words}"):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)


def test_a_tensor_that_is_only_kept_is_fine(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(forward="self.state = torch.tanh(self.linear(x)); return self.state * 2")
    assert judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home).status is Status.PASSED

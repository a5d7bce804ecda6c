"""Tests that what a constructor draws outside parameters and buffers is the same on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.judge.inputs.draws import draw
from harness.project.problems import load, read_problem
from harness.records.record import Status
from tests.judge.in_process import judged

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(9, 9)
        {kept}

    def forward(self, x):
        return torch.tanh(self.linear(x) + {used})


def get_inputs():
    return [torch.randn(5, 9)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("kept", "used"),
    [
        ("self.state = torch.randn(5, 9)", "self.state"),
        ("self.states = [torch.randn(5, 9)]", "self.states[0]"),
        ("import random; self.order = random.sample(range(9), 9)", "x[:, self.order]"),
        ("import numpy; self.order = numpy.random.permutation(9)", "x[:, self.order]"),
        ("import numpy; self.order = numpy.random.permutation(9).tolist()", "x[:, self.order]"),
        ("self.register_buffer('state', torch.randn(5, 9), persistent=False)", "self.state"),
    ],
)
def test_an_exact_copy_passes(kept: str, used: str, tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(kept=kept, used=used)
    record = judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)
    assert (record.status, record.message) == (Status.PASSED, "")


def test_another_tensor_of_the_same_kind_fails(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(kept="self.state = torch.randn(5, 9)", used="self.state")
    other = problem.replace("Model(", "ModelNew(").replace(
        "torch.randn(5, 9)\n\n    def", "-torch.randn(5, 9)\n\n    def"
    )
    assert judged(problem, other, tmp_path, home).status is Status.WRONG_OUTPUT


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kept", "is_drawn_there"),
    [("", True), ("self.state = torch.randn(5, 9)", False), ("self.least = float(torch.zeros(1).numpy()[0])", False)],
)
def test_a_gpu_draws_the_parameters_unless_the_model_cannot_be_constructed_there(
    kept: str, is_drawn_there: bool, tmp_path: Path
) -> None:
    (tmp_path / "one.py").write_text(PROBLEM.format(kept=kept, used="0"), encoding="utf-8")
    problem = read_problem(tmp_path / "one.py")
    module = load(problem, {})

    def weight(device: str, seed: int) -> torch.Tensor:
        drawn = draw(problem, module, [], seed, torch.device(device)).model.get_parameter("linear.weight")
        return drawn.detach().cpu()

    assert torch.equal(weight("cuda:0", 1), weight("cuda:0", 1))
    assert not torch.equal(weight("cuda:0", 1), weight("cuda:0", 2))
    assert torch.equal(weight("cuda:0", 1), weight("cpu", 1)) is not is_drawn_there

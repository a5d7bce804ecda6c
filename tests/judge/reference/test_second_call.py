"""Tests that a problem is refused whose model no candidate could follow from call to call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ProblemError
from harness.records.record import Status
from tests.judge.in_process import judged

Harness = Callable[..., Any]
PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(9, 9)
        self.state = torch.zeros(5, 9)
        self.norm = nn.BatchNorm1d(9)
        self.teacher = nn.Parameter(torch.randn(9), requires_grad=False)
        self.step = 0

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


@pytest.mark.parametrize(
    ("forward", "name"),
    [
        ("self.step += 1; return self.linear(x) / self.step", "step"),
        ("y = self.norm(self.linear(x)) + self.state; self.state = y.detach(); return y", "state"),
        ("y = self.linear(x) * self.teacher; self.teacher.data.lerp_(y.detach().mean(0), 0.5); return y", "teacher"),
    ],
)
def test_numbers_and_parameters_that_a_second_call_depends_on_are_refused(
    forward: str, name: str, tmp_path: Path, home: Path
) -> None:
    problem = PROBLEM.format(forward=forward)
    with pytest.raises(ProblemError, match=f"keeps self.{name} from one forward to the next.* has other results"):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)


@pytest.mark.parametrize(
    "forward",
    [
        "self.step += 1; return self.linear(x)",
        "y = self.norm(self.linear(x)); self.state = y.detach(); return y",
        "self.teacher.data.div_(self.teacher.data.norm()); return self.linear(x) * self.teacher",
    ],
)
def test_what_is_kept_and_changes_no_result_is_fine(forward: str, tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(forward=forward)
    record = judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)
    assert record.status is Status.PASSED, record.message


def test_a_hook_of_a_parameter_is_refused(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(forward="return self.linear(x)").replace(
        "self.step = 0", "self.step = 0; self.linear.weight.register_hook(lambda grad: grad * 0.5)"
    )
    with pytest.raises(ProblemError, match=r"linear\.weight has a hook"):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)


def test_a_forward_that_spoils_its_own_backward_is_refused(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(forward="y = torch.relu(self.linear(x)); y += x; return y")
    with pytest.raises(ProblemError, match="write `y = y \\+ x`, or judge outputs alone with --forward-only"):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)


FORCES = """
        {first}
            energy = torch.tanh(self.linear(x)).sum()
            return torch.autograd.grad(energy, x, create_graph=True)[0]
"""


def test_a_forward_that_needs_autograd_is_refused(tmp_path: Path, home: Path) -> None:
    problem = PROBLEM.format(forward=FORCES.format(first="if True:"))
    with pytest.raises(ProblemError, match=r"does not require grad.*ran under torch.no_grad\(\).*enable_grad"):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)


def test_a_forward_that_turns_autograd_on_is_fine(tmp_path: Path, home: Path, harness: Harness) -> None:
    needs = "x = x if x.requires_grad else x.detach().requires_grad_()"
    problem = PROBLEM.format(forward=FORCES.format(first=f"{needs}\n        with torch.enable_grad():"))
    assert judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home).status is Status.PASSED
    ran = harness("validate", tmp_path / "problem.py", "--device", "cpu")
    assert "FAILED" not in ran.out, ran.out
    assert "fine" in ran.out


ENCODER = """
import torch
import torch.nn as nn

TRAINING = False


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2{more})

    def forward(self, x, padding):
        return self.encoder(x, src_key_padding_mask=padding)


def get_inputs():
    return [torch.randn(4, 8, 16), torch.arange(8) >= torch.randint(1, 8, (4, 1))]


def get_init_inputs():
    return []
"""


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_forward_that_returns_something_else_without_autograd_is_refused(tmp_path: Path, home: Path) -> None:
    scaled = PROBLEM.format(forward="return self.linear(x) * (2 if torch.is_grad_enabled() else 1)")
    for problem in (scaled, ENCODER.format(more="")):  # torch writes zeros where inputs are padded
        with pytest.raises(
            ProblemError, match=r"under torch\.no_grad\(\) forward returns something else.*nested_tensor=False"
        ):
            judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)
    mended = ENCODER.format(more=", enable_nested_tensor=False")
    assert judged(mended, mended.replace("class Model(", "class ModelNew("), tmp_path, home).status is Status.PASSED

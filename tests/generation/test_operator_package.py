"""Tests the package that ``adopt --package`` writes: a module, and an operator that ``torch.compile`` takes whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.generation.operator_package import package_files
from harness.records.record import TensorReport
from harness.records.run_config import RunConfig
from tests.generation.test_rewards import passed

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x, y):
        return torch.square(self.linear(x)) * self.scale, x + y


def get_inputs():
    return [torch.randn(9, 17), torch.randn(9, 17)]


def get_init_inputs():
    return [17]
"""
SOLUTION = """
import torch
import torch.nn as nn


class ScaledSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, scale):
        ctx.save_for_backward(z, scale)
        return z * z * scale

    @staticmethod
    def backward(ctx, gradient):
        z, scale = ctx.saved_tensors
        return 2 * gradient * z * scale, (gradient * z * z).sum(0)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x, y):
        return ScaledSquare.apply(self.linear(x), self.scale), x + y
"""
TRIAL = """
import copy

import torch
from scaled_square import Model
from scaled_square.reference import Model as Reference

model, reference = Model(17), Reference(17)
reference.load_state_dict(model.state_dict())
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
for rows in (9, 12, 5):  # the second makes the number of rows a symbol
    given = [torch.randn(rows, 17, requires_grad=True) for _ in range(2)]
    found = []
    for module, call in ((model, model), (model, compiled), (reference, reference)):
        first, second = call(*given)
        leaves = [*given, *module.parameters()]
        found.append([first, second, *torch.autograd.grad(first.sum() + second.square().sum(), leaves)])
    for mine in found[:2]:
        torch.testing.assert_close(mine, found[2], rtol=1e-4, atol=1e-4)
other = copy.deepcopy(model)
torch.nn.init.zeros_(other.scale)
assert torch.compile(other, fullgraph=True, backend="aot_eager")(*given)[0].count_nonzero() == 0
half = copy.deepcopy(model).to(torch.float64)
given = [one.detach().to(torch.float64).requires_grad_() for one in given]
first, _ = torch.compile(half, fullgraph=True, backend="aot_eager")(*given)
assert first.dtype == torch.float64
torch.testing.assert_close(first, half(*given)[0])
with torch.autocast("cpu"):
    first, _ = compiled(*[one.float() for one in given])
assert first.dtype == torch.float32
given = [one.detach().float().requires_grad_() for one in given]
arguments = (model._number, given, list(model.parameters()))
assert set(torch.library.opcheck(torch.ops.scaled_square.forward, arguments).values()) == {"SUCCESS"}
"""


def test_the_package_of_a_winner_works_with_torch_compile(harness: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "squares.py").write_text(PROBLEM)
    (tmp_path / "mine.py").write_text(SOLUTION)
    (row,) = harness("evaluate", "mine.py", "--problem", "squares", "--device", "cpu", "--json", cwd=tmp_path).rows
    assert row["status"] == "PASSED", row["message"]
    adopt = ("adopt", row["record"], "--name", "scaled_square", "--package", "made")
    ran = harness(*adopt, cwd=tmp_path)
    assert (ran.code, "next: pip install made" in ran.err) == (0, True), ran.err
    assert f"# record: {row['record']}" in (tmp_path / "made" / "src" / "scaled_square" / "solution.py").read_text()
    trial = subprocess.run(
        [sys.executable, "-c", TRIAL], cwd=tmp_path / "made" / "src", capture_output=True, text=True, timeout=300
    )
    assert trial.returncode == 0, trial.stderr
    (tmp_path / "made" / "pyproject.toml").write_text("")
    refused = harness(*adopt, cwd=tmp_path)
    assert (refused.code, "exists with other content" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("name", "outputs", "words"),
    [
        ("fused-norm", ("output",), "a name that Python can import"),
        ("class", ("output",), "a name that Python can import"),
        ("_norm", ("output",), "a name that Python can import"),
        ("größe", ("output",), "a name that Python can import"),
        ("aten", ("output",), "is taken by"),
        ("json", ("output",), "is taken by"),
        ("fused_norm", ("output", "buffer running_mean"), "changes no buffers"),
        ("fused_norm", ("output.logits",), "one tensor or a tuple"),
    ],
)
def test_what_cannot_be_an_operator_is_refused(name: str, outputs: tuple[str, ...], words: str) -> None:
    record = passed(outputs=tuple(TensorReport(one, (2,), "float32", True) for one in outputs))
    with pytest.raises(UsageError, match=words):
        package_files(name, record, "", "")


def test_what_was_judged_without_gradients_has_no_backward() -> None:
    record = passed(outputs=(TensorReport("output", (2,), "float32", True),))
    config = replace(RunConfig.of(record), forward_only=True)
    (text,) = [
        text
        for path, text in package_files("op", replace(record, policy=config.to_policy("cpu")), "", "").items()
        if path.endswith("__init__.py")
    ]
    assert "register_autograd" not in text
    assert "no backward" in text

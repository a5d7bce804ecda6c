"""Tests problems whose operators assert their values on a GPU, where a failed assertion would end the judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.judge.reference.device_assertions import ASSERTING

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(16, 5))

    def forward(self, x, y):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(16, 5))

    def forward(self, x, y):
        {body}
"""
LOSS = (
    "return F.binary_cross_entropy(x, y, reduction='none')",
    "torch.rand(8, 33) * 0.98 + 0.01, torch.rand(8, 33)",
)
#: Rows of x are chosen by y, so that half of the batch has indices beyond it.
CHOSEN = ("return torch.tanh(x[y])", "torch.randn(64, 9), torch.randperm(64)")
LOOKED_UP = ("return x.sum(1, keepdim=True) + self.table[(y * 16).long()]", "torch.rand(32, 5), torch.rand(32)")
BEYOND = ("return x + self.table[y]", "torch.randn(17, 5), torch.arange(17)")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])


def written(folder: Path, body: str, inputs: str) -> list[Path]:
    (folder / "problem.py").write_text(PROBLEM.format(body=body, inputs=inputs))
    (folder / "answer.py").write_text(SOLUTION.format(body=body))
    return [folder / "problem.py", folder / "answer.py"]


@devices
@pytest.mark.parametrize(
    ("case", "left_out"),
    [(LOSS, {"signs", "not finite", "large"}), (CHOSEN, {"batch"}), (LOOKED_UP, {"not finite", "large"})],
    ids=["loss", "chosen", "looked up"],
)
def test_values_that_an_operator_refuses_are_left_out(
    case: tuple[str, str], left_out: set[str], device: str, tmp_path: Path, harness: Callable[..., Any]
) -> None:
    problem, answer = written(tmp_path, *case)
    ran = harness("evaluate", answer, "--problem", problem, "--device", device, "--no-timing", "--json")
    (record,) = ran.rows
    assert record["status"] == "PASSED", record["message"]
    assert {name for name, end in record["robustness"].items() if end.startswith("left out: ")} >= left_out
    assert not any(finding["kind"] == "robustness" for finding in record["findings"])


@devices
def test_a_problem_whose_own_index_is_out_of_bounds_is_told_its_line(
    device: str, tmp_path: Path, harness: Callable[..., Any]
) -> None:
    problem, answer = written(tmp_path, *BEYOND)
    for command in (("evaluate", answer, "--problem", problem, "--no-timing"), ("validate", problem)):
        ran = harness(*command, "--device", device)
        assert ran.code == 2
        assert (
            "problem.py:13: the reference's forward failed: IndexError: index 16 is out of bounds" in ran.out + ran.err
        )


@pytest.mark.parametrize("name", sorted(ASSERTING))
def test_each_name_is_an_operator_of_torch(name: str) -> None:
    assert hasattr(torch.ops.aten, name) or hasattr(torch.ops.aten, f"{name}_")

"""Tests that one problem's code cannot change a verdict on another problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 8, 5)]


def get_init_inputs():
    return []
"""
CHANGES = {
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "default device": "torch.set_default_device('meta')",
    "gradients": "torch.set_grad_enabled(False)",
    "a replaced method": "nn.GroupNorm.forward = lambda self, x: x.detach()",
    "a replaced function": "nn.functional.group_norm = lambda x, *rest, **more: x.detach()",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_problem_that_changes_torch_changes_no_other_verdict(
    change: str, tmp_path: Path, harness: Callable[..., Any]
) -> None:
    model = PROBLEM.split("def get_inputs")[0]
    files = {
        "problems/a_changing.py": PROBLEM + CHANGES[change] + "\n",
        "solutions/a_changing/tanh.py": model.replace("Model(", "ModelNew("),
        "problems/b_norm.py": NORM,
        "solutions/b_norm/norm.py": NORM.split("def get_inputs")[0].replace("Model(", "ModelNew("),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ran = harness("evaluate", "--root", tmp_path, "--device", "cpu", "--ahead", "0", "--json")
    (norm,) = [row for row in ran.rows if row["problem"] == "b_norm"]
    assert norm["status"] == "PASSED", norm["message"]

"""The committed group norms on inputs that the shipped cases do not have: strides, addresses, means, row counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# What the model is called on is a view that the model itself makes: inputs always arrive dense and aligned. What
# follows the model is a view too, so that its backward gets a gradient with the same strides or address.
VIEWS = '''
import torch

def transposed(model, x):
    """x is (batch, *spatial, channels), as images of a channels-last file are."""
    return model(x.movedim(-1, 1)).movedim(1, -1)

def odd_address(model, x):
    """One float past an aligned address: rows that could be read four at a time, if only they were aligned."""
    y = model(one_float_on(x))
    return one_float_on(y)

def one_float_on(x):
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)

def as_it_is(model, x):
    return model(x)
'''

PROBLEM = '''
"""A group norm on a view of its input."""

import torch
import torch.nn as nn

view = "as_it_is"
shape = (2, 8, 16, 16)
channels = 8
groups = 2
mean = 0.0
spread = 1.0

CASES = {
    "transposed": {"view": "transposed", "shape": (3, 12, 10, 20), "channels": 20, "groups": 5},
    "odd_address": {"view": "odd_address", "shape": (3, 8, 32, 36)},
    "odd_address_large": {"view": "odd_address", "shape": (1, 4, 96, 96), "channels": 4},
    "far_from_zero": {"mean": 1000.0, "shape": (3, 8, 40, 41)},
    "many_short_rows": {"shape": (70000, 4, 1), "channels": 4, "groups": 1},
}


class Model(nn.Module):
    def __init__(self, view: str, channels: int, groups: int):
        super().__init__()
        self.view = globals()[view]
        self.gn = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.view(self.gn, x)


def get_inputs():
    return [torch.randn(shape) * spread + mean]


def get_init_inputs():
    return [view, channels, groups]
'''

WRAPPER = """
committed = {{"__name__": "committed"}}
with open({path!r}, encoding="utf-8") as file:
    exec(compile(file.read(), {path!r}, "exec"), committed)


class ModelNew(committed["ModelNew"]):
    def __init__(self, view, channels, groups):
        super().__init__(channels, groups)
        self.view = globals()[view]

    def forward(self, x):
        return self.view(super().forward, x)
"""

CASES = {"transposed", "odd_address", "odd_address_large", "far_from_zero", "many_short_rows"}


@pytest.mark.parametrize("variant", ["two_kernels", "fused"])
def test_committed_solution_passes_on_unusual_inputs(variant: str, tmp_path: Path, harness: Callable[..., Any]) -> None:
    committed = REPOSITORY / "solutions" / "group_norm" / f"{variant}.py"
    problem, solution = tmp_path / "viewed_group_norm.py", tmp_path / f"{variant}.py"
    problem.write_text(VIEWS + PROBLEM)
    solution.write_text(VIEWS + WRAPPER.format(path=str(committed)))
    ran = harness("evaluate", solution, "--problem", problem, "--json")
    assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(CASES, "PASSED"), ran.out + ran.err
    for row in ran.rows:
        assert {gradient["name"] for gradient in row["gradients"]} == {"x", "gn.weight", "gn.bias"}

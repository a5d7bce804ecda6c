"""Tests the variants of group norm beyond the shipped cases: strides, addresses, means, row counts."""

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
import torch.nn as nn


def as_it_is(model, x):
    return model(x)


def transposed(model, x):
    """x is (batch, *spatial, channels), as images of a channels-last file are."""
    return model(x.movedim(-1, 1)).movedim(1, -1)


def one_float_on(x):
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def odd_address(model, x):
    return one_float_on(model(one_float_on(x)))
'''

PROBLEM = """
view = "as_it_is"
shape = (2, 8, 16, 16)
channels = 8
groups = 2
mean = 0.0

CASES = {
    "transposed": {"view": "transposed", "shape": (3, 12, 10, 20), "channels": 20, "groups": 5},
    # Rows long enough for vectors, and of a length that allows them: only the address forbids them.
    "odd_address": {"view": "odd_address", "shape": (1, 4, 96, 96), "channels": 4},
    "far_from_zero": {"mean": 1000.0, "shape": (3, 8, 40, 41)},
    # Rows of one element, more than 65535 of them; then as many groups, more than a grid's height could hold.
    "many_rows": {"shape": (16500, 4, 1), "channels": 4, "groups": 1},
    "many_groups": {"shape": (70000, 4, 1), "channels": 4, "groups": 1},
}


class Model(nn.Module):
    def __init__(self, view: str, channels: int, groups: int):
        super().__init__()
        self.view = globals()[view]
        self.gn = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.view(self.gn, x)


def get_inputs():
    return [torch.randn(shape) + mean]


def get_init_inputs():
    return [view, channels, groups]
"""

WRAPPER = """
committed = {{"__name__": "committed"}}
exec(compile({text!r}, "committed.py", "exec"), committed)


class ModelNew(committed["ModelNew"]):
    def __init__(self, view, channels, groups):
        super().__init__(channels, groups)
        self.view = globals()[view]

    def forward(self, x):
        return self.view(super().forward, x)
"""

WITH_GRADIENTS = ("transposed", "odd_address", "far_from_zero", "many_rows")
FORWARD_ONLY = ("many_groups",)  # a backward of so many would take most of a minute

each_variant = pytest.mark.parametrize("variant", ["streamed", "two_kernels", "fused"])


@pytest.fixture
def evaluate(
    variant: str, tmp_path: Path, harness: Callable[..., Any], solution_of: Callable[[str, str], Path]
) -> Callable[..., list[dict[str, Any]]]:
    """Evaluates a variant on the viewed problem's cases."""

    def run(cases: tuple[str, ...], *options: str) -> list[dict[str, Any]]:
        problem, solution = tmp_path / "viewed_group_norm.py", tmp_path / f"{variant}.py"
        problem.write_text(VIEWS + PROBLEM)
        solution.write_text(VIEWS + WRAPPER.format(text=solution_of("group_norm", variant).read_text()))
        chosen = [word for case in cases for word in ("--case", case)]
        ran = harness("evaluate", solution, "--problem", problem, "--json", *chosen, *options)
        assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(cases, "PASSED"), ran.out + ran.err
        return list(ran.rows)

    return run


@each_variant
def test_outputs_and_gradients_on_unusual_inputs(evaluate: Callable[..., list[dict[str, Any]]]) -> None:
    for row in evaluate(WITH_GRADIENTS):
        assert {gradient["name"] for gradient in row["gradients"]} == {"x", "gn.weight", "gn.bias"}


@each_variant
def test_outputs_of_more_groups_than_a_grid_is_high(evaluate: Callable[..., list[dict[str, Any]]]) -> None:
    (row,) = evaluate(FORWARD_ONLY, "--forward-only")
    assert row["outputs"][0]["shape"] == [70000, 4, 1]


def test_halves(harness: Callable[..., Any]) -> None:
    """Kernels for other dtypes than float32 are built when they are met."""
    cases = ("odd", "odd_bfloat16", "flat_2d")
    chosen = [word for case in cases for word in ("--case", case)]
    solution = REPOSITORY / "solutions" / "group_norm" / "streamed.py"
    ran = harness("evaluate", solution, "--problem", "group_norm_half", "--json", *chosen)
    assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(cases, "PASSED"), ran.out + ran.err
    assert {row["outputs"][0]["dtype"] for row in ran.rows} == {"float16", "bfloat16"}
    assert {one["dtype"] for row in ran.rows for one in row["gradients"] if one["name"] == "gn.weight"} == {"float32"}

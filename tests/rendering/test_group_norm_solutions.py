"""Tests the variants of group norm beyond the shipped cases: strides, addresses, means, row counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.running import run_on_emulator
from tests.fork_server import ForkServers

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

CASES = ("transposed", "odd_address", "far_from_zero")

#: One forward and backward of rows of one element, in as many groups as samples.
MANY_GROUPS = """

def worst_error(samples, channels):
    x = torch.randn(samples, channels, 1, requires_grad=True)
    model, reference = ModelNew(channels, 1), torch.nn.GroupNorm(1, channels).double()
    y, expected = model(x), reference(x.double())
    cotangent = torch.randn_like(y)
    got = (y, *torch.autograd.grad(y, (x, *model.parameters()), cotangent))
    wanted = (expected, *torch.autograd.grad(expected, (x, *reference.parameters()), cotangent.double()))
    return max(((one - two).norm() / two.norm()).item() for one, two in zip(got, wanted, strict=True))


result = worst_error(70000, 4)
"""

each_variant = pytest.mark.parametrize("variant", ["streamed", "two_kernels", "fused"])


@each_variant
def test_outputs_and_gradients_on_unusual_inputs(
    variant: str, tmp_path: Path, harness: Callable[..., Any], solution_of: Callable[[str, str], Path]
) -> None:
    problem, solution = tmp_path / "viewed_group_norm.py", tmp_path / f"{variant}.py"
    problem.write_text(VIEWS + PROBLEM)
    solution.write_text(VIEWS + WRAPPER.format(text=solution_of("group_norm", variant).read_text()))
    chosen = [word for case in CASES for word in ("--case", case)]
    ran = harness("evaluate", solution, "--problem", problem, "--json", *chosen)
    assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(CASES, "PASSED"), ran.out + ran.err
    for row in ran.rows:
        assert {gradient["name"] for gradient in row["gradients"]} == {"x", "gn.weight", "gn.bias"}


@each_variant
def test_more_groups_than_a_grid_is_high(
    variant: str,
    fork_servers: ForkServers,
    tmp_path: Path,
    shared_emulator: Path,
    solution_of: Callable[[str, str], Path],
) -> None:
    solution = tmp_path / f"{variant}.py"
    solution.write_text(solution_of("group_norm", variant).read_text() + MANY_GROUPS)
    answer = run_on_emulator(fork_servers, solution, tmp_path / "built", shared_emulator)
    assert answer["reports"] == []
    assert answer["result"] < 5e-6


def test_halves(harness: Callable[..., Any]) -> None:
    """Kernels for other dtypes than float32 are built when they are met."""
    cases = ("odd", "odd_bfloat16", "flat_2d")
    chosen = [word for case in cases for word in ("--case", case)]
    solution = REPOSITORY / "solutions" / "group_norm" / "streamed.py"
    ran = harness("evaluate", solution, "--problem", "group_norm_half", "--json", *chosen)
    assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(cases, "PASSED"), ran.out + ran.err
    assert {row["outputs"][0]["dtype"] for row in ran.rows} == {"float16", "bfloat16"}
    assert {one["dtype"] for row in ran.rows for one in row["gradients"] if one["name"] == "gn.weight"} == {"float32"}

"""Tests the committed linear layers beyond the shipped cases: strides, addresses, biases, edges, no samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STEM = "gemm_bias_add_hardtanh_mish_group_norm"

# What the layers are called on, and with, are views that the model itself makes: inputs always arrive dense and
# aligned. What follows them is a view too, so that their backward gets a gradient with the same strides or address.
VIEWS = '''
import torch
import torch.nn as nn


def as_it_is(layers, x):
    return layers(x)


def transposed(layers, x):
    """x is (in_features, batch)."""
    return layers(x.t()).t()


def one_float_on(x):
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def odd_address(layers, x):
    return one_float_on(layers(one_float_on(x)))


def repeated(layers, x):
    """A bias of many rows meets one sample."""
    return layers(x[:1])


def detached(layers, x):
    return layers(x.detach())


def freeze(model, names):
    """Let some parameters want no gradient."""
    for name in names:
        model.layers.get_parameter(name).requires_grad_(False)
'''

PROBLEM = """
view = "as_it_is"
shape = (6, 20)
in_features = 20
out_features = 48
bias_shape = (48,)
groups = 6
frozen = ()
scale = 1.0

CASES = {
    "transposed": {"view": "transposed", "shape": (20, 6)},
    # Sizes that allow vectors: only the address forbids them.
    "odd_address": {"view": "odd_address"},
    "no_bias_dimension": {"bias_shape": ()},
    "bias_for_every_element": {"bias_shape": (6, 48)},
    # As many elements as there are columns, but one a row.
    "square_bias_a_sample": {"shape": (48, 20), "bias_shape": (48, 1)},
    "bias_rows_for_one_sample": {"view": "repeated", "bias_shape": (5, 48)},
    "long_groups_bias_a_sample": {"out_features": 300, "groups": 2, "bias_shape": (6, 1)},
    "one_channel_a_group": {"groups": 48},
    # Nearly everything lies beyond Hardtanh's edges: groups of equal values.
    "clamped": {"scale": 40.0},
    "input_alone": {"frozen": ("gemm.weight", "gemm.bias", "bias", "groupnorm.weight", "groupnorm.bias")},
    "biases_alone": {"view": "detached", "frozen": ("gemm.weight", "groupnorm.weight", "groupnorm.bias")},
    "affine_alone": {"view": "detached", "frozen": ("gemm.weight", "gemm.bias", "bias")},
    "long_groups_affine_alone": {
        "view": "detached",
        "out_features": 300,
        "groups": 2,
        "bias_shape": (300,),
        "frozen": ("gemm.weight", "gemm.bias", "bias"),
    },
}


class Layers(nn.Module):
    def __init__(self, in_features: int, out_features: int, bias_shape: tuple, groups: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.groupnorm = nn.GroupNorm(groups, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.groupnorm(nn.functional.mish(nn.functional.hardtanh(self.gemm(x) + self.bias)))


class Model(nn.Module):
    def __init__(self, view: str, frozen: tuple, *sizes):
        super().__init__()
        self.view = globals()[view]
        self.layers = Layers(*sizes)
        freeze(self, frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.view(self.layers, x)


def get_inputs():
    return [torch.rand(shape) * scale]


def get_init_inputs():
    return [view, frozen, in_features, out_features, bias_shape, groups]
"""

WRAPPER = """
committed = {{"__name__": "committed"}}
exec(compile({text!r}, "committed.py", "exec"), committed)


class ModelNew(nn.Module):
    def __init__(self, view, frozen, *sizes):
        super().__init__()
        self.view = globals()[view]
        self.layers = committed["ModelNew"](*sizes)
        freeze(self, frozen)

    def forward(self, x):
        if self.view is odd_address:
            probe(self.layers, x)
        return self.view(self.layers, x)
"""

# Asserted where the kernels run: no samples, the same bits twice, and words for what is refused.
PROBES = """

def probe(layers, x):
    wanted = [parameter for parameter in layers.parameters() if parameter.requires_grad]
    if not wanted or not torch.is_grad_enabled():
        return
    empty = layers(x.new_zeros(0, x.shape[1]).requires_grad_())
    assert empty.shape == (0, 48)
    gradients = torch.autograd.grad(empty.sum(), wanted)
    assert not any(gradient.count_nonzero() for gradient in gradients)
    twice = [layers(x) for _ in range(2)]
    assert torch.equal(*twice)
    first, second = (torch.autograd.grad(y.square().sum(), wanted) for y in twice)
    assert all(map(torch.equal, first, second))
    edges = committed["ModelNew"](1, 4, (4,), 1)
    with torch.no_grad():
        edges.gemm.weight.zero_()
        edges.gemm.bias.copy_(torch.tensor([1.0, -1.0, 0.5, float("nan")]))
        edges.bias.zero_()
    x_edges = x.new_zeros(2, 1)
    assert edges(x_edges).isnan().all()
    with torch.no_grad():
        edges.gemm.bias[3] = 0.25
    edges(x_edges)[:, 2].sum().backward()
    assert (edges.bias.grad != 0).tolist() == [False, False, True, True], edges.bias.grad
    for call, words in [
        (lambda: layers(x[0]), "x must be (batch, in_features)"),
        (lambda: layers(x.double()), "float"),
        (lambda: committed["ModelNew"](20, 48, (3, 48), 6)(x), "does not broadcast to (6, 48)"),
        (lambda: committed["ModelNew"](20, 48, (6, 48, 1), 6), "does not broadcast to (batch, 48)"),
        (lambda: committed["ModelNew"](20, 48, (6,), 6), "does not broadcast to (batch, 48)"),
    ]:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing was raised, expected: {words}")
"""

ALL = {"x", *(f"layers.{name}" for name in ("gemm.weight", "gemm.bias", "bias", "groupnorm.weight", "groupnorm.bias"))}
CASES = (
    "transposed",
    "odd_address",
    "no_bias_dimension",
    "bias_for_every_element",
    "square_bias_a_sample",
    "bias_rows_for_one_sample",
    "long_groups_bias_a_sample",
    "one_channel_a_group",
    "clamped",
    "input_alone",
    "biases_alone",
    "affine_alone",
    "long_groups_affine_alone",
)
# Where not all gradients are wanted.
GRADIENTS = {
    "input_alone": {"x"},
    "biases_alone": {"layers.gemm.bias", "layers.bias"},
    "affine_alone": {"layers.groupnorm.weight", "layers.groupnorm.bias"},
    "long_groups_affine_alone": {"layers.groupnorm.weight", "layers.groupnorm.bias"},
}


@pytest.mark.parametrize("variant", ["aten", "split", "tiled"])
def test_outputs_and_gradients_on_what_is_unusual(
    variant: str, tmp_path: Path, harness: Callable[..., Any], solution_of: Callable[[str, str], Path]
) -> None:
    problem, solution = tmp_path / "viewed.py", tmp_path / f"{variant}.py"
    problem.write_text(VIEWS + PROBLEM)
    solution.write_text(VIEWS + WRAPPER.format(text=solution_of(STEM, variant).read_text()) + PROBES)
    cases = [word for case in CASES for word in ("--case", case)]
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--seed", "1" * 32, "--json", *cases)
    assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(CASES, "PASSED"), ran.out + ran.err
    for row in ran.rows:
        received = {gradient["name"] for gradient in row["gradients"]}
        assert received == GRADIENTS.get(row["case"], ALL), row["case"]

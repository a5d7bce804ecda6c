"""Tests the committed linear layers with group norm and minimum beyond the shipped cases, and wrong twins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STEM = "gemm_group_norm_min_bias_add"

# What the layers are called on, and with, are views that the model itself makes: inputs always arrive dense and
# aligned. What follows them is a view too, so that their backward gets a gradient with the same strides or address.
VIEWS = '''
import torch
import torch.nn as nn


def as_it_is(layers, x):
    return layers(x)


def transposed(layers, x):
    """x is (in_features, batch)."""
    return layers(x.t()).transpose(1, 2)


def one_float_on(x):
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def odd_address(layers, x):
    return one_float_on(layers(one_float_on(x)))


def summed(layers, x):
    """The gradient is one float, seen from every element."""
    return layers(x).sum(1)


def stacked(layers, x):
    """The gradient lies in every second float."""
    return torch.stack([layers(x), layers(x).detach()], -1)


def first_sample(layers, x):
    """A bias of many rows meets one sample."""
    return layers(x[:1])


def detached(layers, x):
    return layers(x.detach())


def freeze(model, names):
    """Let some parameters want no gradient."""
    for name in names:
        model.layers.get_parameter(name).requires_grad_(False)


def tie(layers):
    """Three channels of different groups have the same minimum, whatever the input."""
    with torch.no_grad():
        layers.group_norm.weight.normal_()
        layers.group_norm.bias.normal_()
        for channel in (35, 11, 20):
            layers.group_norm.weight[channel] = 0
            layers.group_norm.bias[channel] = -50


def double(layers):
    """Each channel has a twin in its group, right after it."""
    with torch.no_grad():
        layers.group_norm.weight.normal_()
        layers.group_norm.bias.normal_()
        for parameter in (*layers.gemm.parameters(), *layers.group_norm.parameters()):
            parameter[1::2] = parameter[::2]
'''

PROBLEM = """
view = "as_it_is"
shape = (6, 20)
in_features = 20
out_features = 48
bias_shape = (1, out_features, 1, 1)
groups = 6
frozen = ()
prepared = ""

CASES = {
    "as_written": {},
    "transposed": {"view": "transposed", "shape": (20, 6)},
    # Sizes that allow vectors: only the address forbids them.
    "odd_address": {"view": "odd_address", "shape": (8, 20)},
    "summed": {"view": "summed"},
    "stacked": {"view": "stacked"},
    "row_for_every_sample": {"bias_shape": (6, 48)},
    "stack_of_columns": {"bias_shape": (3, 1, 2, 6, 1)},
    "stack_of_rows": {"bias_shape": (3, 1, 2, 1, 5)},
    "bias_rows_for_one_sample": {"view": "first_sample", "bias_shape": (5, 48)},
    "tied": {"prepared": "tie"},
    "twins": {"shape": (6, 1), "in_features": 1, "prepared": "double"},
    "input_alone": {"frozen": ("gemm.weight", "gemm.bias", "group_norm.weight", "group_norm.bias", "bias")},
    "weight_alone": {
        "view": "detached",
        "frozen": ("gemm.bias", "group_norm.weight", "group_norm.bias", "bias"),
    },
    "affine_alone": {"view": "detached", "frozen": ("gemm.weight", "gemm.bias", "bias")},
    "bias_alone": {
        "view": "detached",
        "frozen": ("gemm.weight", "gemm.bias", "group_norm.weight", "group_norm.bias"),
    },
}


class Layers(nn.Module):
    def __init__(self, in_features: int, out_features: int, groups: int, bias_shape: tuple):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(groups, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.min(self.group_norm(self.gemm(x)), dim=1, keepdim=True)[0] + self.bias


class Model(nn.Module):
    def __init__(self, view: str, frozen: tuple, prepared: str, *sizes):
        super().__init__()
        self.view = globals()[view]
        self.layers = Layers(*sizes)
        if prepared:
            globals()[prepared](self.layers)
        freeze(self, frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.view(self.layers, x)


def get_inputs():
    return [torch.rand(shape)]


def get_init_inputs():
    return [view, frozen, prepared, in_features, out_features, groups, bias_shape]
"""

WRAPPER = """
committed = {{"__name__": "committed"}}
exec(compile({text!r}, "committed.py", "exec"), committed)


class ModelNew(nn.Module):
    def __init__(self, view, frozen, prepared, *sizes):
        super().__init__()
        self.view = globals()[view]
        self.layers = committed["ModelNew"](*sizes)
        self.probed = view != "odd_address"
        freeze(self, frozen)

    def forward(self, x):
        all_differ = torch.is_grad_enabled() and all(one.requires_grad for one in self.layers.parameters())
        if all_differ and not self.probed:
            probe(self.layers, x)
            self.probed = True
        return self.view(self.layers, x)
"""

# Asserted once where the kernels run: no samples, no bias, the same bits twice, NaN, more groups than shared memory
# counts, and words for what is refused.
PROBES = """

def gradients_of(layers, y):
    return torch.autograd.grad(y.square().sum(), list(layers.parameters()))


def probe(layers, x):
    empty = layers(x.new_zeros(0, x.shape[1]).requires_grad_())
    assert empty.shape == (1, 48, 0, 1)
    assert not any(gradient.count_nonzero() for gradient in gradients_of(layers, empty))
    without_bias = committed["ModelNew"](20, 48, 6, (0, 1, 1))
    nothing = without_bias(x)
    assert nothing.shape == (0, 8, 1)
    assert not any(gradient.count_nonzero() for gradient in gradients_of(without_bias, nothing))
    with torch.no_grad():
        assert torch.equal(layers(x), layers(x))
    first, second = (gradients_of(layers, layers(x)) for _ in range(2))
    assert all(map(torch.equal, first, second))
    probe_nan(x)
    probe_many_groups(x)
    for call, words in [
        (lambda: layers(x[0]), "x must be (batch, in_features)"),
        (lambda: layers(x.double()), "float"),
        (lambda: committed["ModelNew"](20, 48, 6, (1, 3, 48))(x), "does not broadcast to 8 samples"),
    ]:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing was raised, expected: {words}")


def probe_nan(x):
    # NaN is less than all else, and of several the first is meant: in its channel, or its group, where it arises.
    for name, channel, winner in [("group_norm.bias", 29, 29), ("gemm.bias", 29, 24)]:
        broken = committed["ModelNew"](20, 48, 6, (48, 1, 1))
        with torch.no_grad():
            broken.get_parameter(name)[channel] = float("nan")
            broken.group_norm.bias[47] = float("nan")
        y = broken(x)
        assert y.isnan().all()
        y.sum().backward()
        assert broken.group_norm.bias.grad.nonzero().flatten().tolist() == [winner]
        assert (broken.group_norm.bias.grad[winner] == 8 * 48).all()


def probe_many_groups(x):
    many = committed["ModelNew"](20, 9000, 4500, ())
    with torch.no_grad():  # as they are, the minima of all groups are as good as equal
        many.group_norm.weight.normal_()
        many.group_norm.bias.normal_()
    y = many(x[:2])
    least, winners = many.group_norm(many.gemm(x[:2])).min(1)
    assert torch.allclose(y.flatten(), least + many.bias, atol=1e-5)
    y.sum().backward()
    assert many.group_norm.bias.grad.nonzero().flatten().tolist() == sorted(set(winners.tolist()))
    channels = many.gemm.weight.grad.abs().sum(1).nonzero().flatten()
    assert set((channels // 2).tolist()) == set((winners // 2).tolist())
"""

NAMES = ("gemm.weight", "gemm.bias", "group_norm.weight", "group_norm.bias", "bias")
ALL = {"x", *(f"layers.{name}" for name in NAMES)}
CASES = (
    "transposed",
    "odd_address",
    "summed",
    "stacked",
    "row_for_every_sample",
    "stack_of_columns",
    "stack_of_rows",
    "bias_rows_for_one_sample",
    "tied",
    "twins",
    "input_alone",
    "weight_alone",
    "affine_alone",
    "bias_alone",
)
# The others where they take another path than the first.
VARIANTS = {
    "aten": CASES,
    "split": ("transposed", "odd_address", "tied", "twins"),  # the emulator has torch multiply
    "tiled_epilogue": ("transposed", "odd_address", "stack_of_columns", "tied", "twins"),
    "tiled_separate_dense": (
        "odd_address",
        "row_for_every_sample",
        "stack_of_columns",
        "stack_of_rows",
        "bias_rows_for_one_sample",
        "twins",
        "input_alone",
        "weight_alone",
    ),
}
# Where not all gradients are wanted.
GRADIENTS = {
    "input_alone": {"x"},
    "weight_alone": {"layers.gemm.weight"},
    "affine_alone": {"layers.group_norm.weight", "layers.group_norm.bias"},
    "bias_alone": {"layers.bias"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_gradients_on_what_is_unusual(
    variant: str, tmp_path: Path, harness: Callable[..., Any], solution_of: Callable[[str, str], Path]
) -> None:
    problem, solution = tmp_path / "viewed.py", tmp_path / f"{variant}.py"
    problem.write_text(VIEWS + PROBLEM)
    solution.write_text(VIEWS + WRAPPER.format(text=solution_of(STEM, variant).read_text()) + PROBES)
    cases = VARIANTS[variant]
    chosen = [word for case in cases for word in ("--case", case)]
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--seed", "1" * 32, "--json", *chosen)
    assert {row["case"]: row["status"] for row in ran.rows} == dict.fromkeys(cases, "PASSED"), ran.out + ran.err
    for row in ran.rows:
        received = {gradient["name"] for gradient in row["gradients"]}
        assert received == GRADIENTS.get(row["case"], ALL), row["case"]


TWIN = """

class ModelNew(nn.Module):
    def __init__(self, view, frozen, prepared, in_features, out_features, groups, bias_shape):
        super().__init__()
        self.view = globals()[view]
        self.layers = nn.Module()
        self.layers.gemm = nn.Linear(in_features, out_features)
        self.layers.group_norm = nn.GroupNorm(groups, out_features)
        self.layers.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        return self.view(self.run, x)

    def run(self, x):
        z, norm, bias = self.layers.gemm(x), self.layers.group_norm, self.layers.bias
        grouped = z.view(z.shape[0], norm.num_groups, -1)
        mean, variance = grouped.mean(2, keepdim=True), grouped.var(2, correction=0, keepdim=True)
        weight, shift = norm.weight, norm.bias
        a = ((grouped - mean) / (variance + norm.eps).sqrt()).view(z.shape) * weight + shift
        return torch.min(a, dim=1, keepdim=True)[0] + bias
"""


def replaced(old: str, new: str) -> str:
    assert old in TWIN
    return TWIN.replace(old, new)


# What people get wrong: the text of the twin, and its status.
BATCH = "grouped.mean((0, 2), keepdim=True), grouped.var((0, 2), correction=0, keepdim=True)"
TWINS = {
    "honest": (TWIN, "PASSED"),
    "squeezed": (replaced("[0] + bias", "[0] + bias.flatten()"), "WRONG_OUTPUT"),
    "statistics_over_the_batch": (
        replaced("grouped.mean(2, keepdim=True), grouped.var(2, correction=0, keepdim=True)", BATCH),
        "WRONG_OUTPUT",
    ),
    "affine_by_group": (
        replaced("norm.weight, norm.bias", "(p[::8].repeat_interleave(8) for p in norm.parameters())"),
        "WRONG_OUTPUT",
    ),
    # The gradient goes to all of the least, or to the last of them.
    "spread_over_ties": (
        replaced("torch.min(a, dim=1, keepdim=True)[0]", "torch.amin(a, dim=1, keepdim=True)"),
        "WRONG_GRADIENT",
    ),
    "last_of_ties": (
        replaced("torch.min(a, dim=1, keepdim=True)[0]", "torch.min(a.flip(1), dim=1, keepdim=True)[0]"),
        "WRONG_GRADIENT",
    ),
}


def test_wrong_twins_fail_and_the_honest_one_passes(tmp_path: Path, harness: Callable[..., Any]) -> None:
    problem = tmp_path / "viewed.py"
    problem.write_text(VIEWS + PROBLEM)
    paths = [tmp_path / f"{name}.py" for name in TWINS]
    for path in paths:
        path.write_text(VIEWS + TWINS[path.stem][0])
    options = ("--device", "cpu", "--seed", "4" * 32, "--case", "twins", "--json")
    ran = harness("evaluate", *paths, "--problem", problem, *options)
    statuses = {Path(row["solution"]).stem: row["status"] for row in ran.rows}
    assert statuses == {name: status for name, (_, status) in TWINS.items()}, ran.out + ran.err
    messages = {Path(row["solution"]).stem: row["message"] for row in ran.rows}
    assert "shape" in messages["squeezed"]
    assert "gradient of layers." in messages["spread_over_ties"]

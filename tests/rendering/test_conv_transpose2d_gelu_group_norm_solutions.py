"""Tests the variants of the transposed convolution on inputs beyond the shipped cases, and hostile twins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

STEM = "conv_transpose2d_gelu_group_norm"

# What the layers are called on is a view that the model itself makes: inputs always arrive dense and aligned. What
# follows them is a view too, so that their backward gets a gradient with the same strides or address.
VIEWS = '''
import torch
import torch.nn as nn


def as_it_is(layers, x):
    return layers(x)


def channels_last(layers, x):
    """x is (batch, height, width, channels)."""
    return layers(x.movedim(-1, 1)).movedim(1, -1)


def sliced(layers, x):
    """Every third row and column of x, and of what comes out every second column."""
    return layers(x[:, :, ::3, 1::3])[..., ::2]


def one_float_on(x):
    return torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)


def odd_address(layers, x):
    return one_float_on(layers(one_float_on(x)))


def detached(layers, x):
    return layers(x.detach())


def freeze(model, names):
    """Let parameters whose names begin with these want no gradient."""
    for name, parameter in model.layers.named_parameters():
        parameter.requires_grad_(not name.startswith(names))
'''

PROBLEM = """
view = "as_it_is"
shape = (2, 6, 7, 5)
out_channels = 8
kernel = 3
stride = 1
groups = 2
frozen = ()
mean = 0.0

CASES = {
    "channels_last": {"view": "channels_last", "shape": (2, 7, 5, 6)},
    "sliced": {"view": "sliced", "shape": (2, 6, 13, 20), "kernel": 2, "stride": 2},
    # Rows long enough for vectors, and of a length that allows them: only the address forbids them.
    "odd_address": {"view": "odd_address", "shape": (1, 2, 44, 44), "out_channels": 4},
    "far_from_zero": {"mean": 100.0, "kernel": 1, "shape": (2, 6, 9, 12)},
    # Heights and widths apart; along a width, three taps that meet at every second or third pixel.
    "upright_kernel": {"kernel": (4, 1), "stride": (3, 2)},
    "wide_kernel": {"kernel": (2, 6), "stride": (5, 2)},
    "long_kernel": {"kernel": (1, 9), "stride": (1, 3), "shape": (2, 6, 3, 4)},
    # More pixels in a row, and more channels on either side, than a tile has; a kernel larger than the image.
    "wide_image": {"shape": (1, 3, 2, 300)},
    "many_channels": {"shape": (2, 70, 3, 4), "out_channels": 136},
    "large_kernel": {"shape": (2, 3, 2, 1), "kernel": 7},
    # Images of fewer pixels than a warp has lanes; groups of one element, which are all equal.
    "one_pixel": {"shape": (3, 6, 1, 1)},
    "one_element_groups": {"shape": (5, 6, 1, 1), "kernel": 1, "groups": 8},
    "input_alone": {"frozen": ("conv_transpose", "group_norm")},
    "weight_alone": {"view": "detached", "frozen": ("conv_transpose.bias", "group_norm")},
    "bias_alone": {"view": "detached", "frozen": ("conv_transpose.weight", "group_norm")},
    "affine_alone": {"view": "detached", "frozen": ("conv_transpose",)},
}


class Layers(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel, stride, groups: int):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel, stride=stride)
        self.group_norm = nn.GroupNorm(groups, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.group_norm(nn.functional.gelu(self.conv_transpose(x)))


class Model(nn.Module):
    def __init__(self, view: str, frozen: tuple, *sizes):
        super().__init__()
        self.view = globals()[view]
        self.layers = Layers(*sizes)
        freeze(self, frozen)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.view(self.layers, x)


def get_inputs():
    return [torch.randn(shape) + mean]


def get_init_inputs():
    in_channels = shape[-1] if view == "channels_last" else shape[1]
    return [view, frozen, in_channels, out_channels, kernel, stride, groups]
"""

WRAPPER = """
committed = {{"__name__": "committed"}}
exec(compile({text!r}, "committed.py", "exec"), committed)


class ModelNew(nn.Module):
    def __init__(self, view, frozen, *sizes):
        super().__init__()
        self.view = globals()[view]
        in_channels, out_channels, kernel, stride, groups = sizes
        self.layers = committed["ModelNew"](in_channels, out_channels, kernel, stride, 1, groups)
        freeze(self, frozen)

    def forward(self, x):
        if self.view is sliced:
            probe(self.layers, x)
        return self.view(self.layers, x)
"""

# Asserted where the kernels run: no samples, the same bits twice, and words for what is refused.
PROBES = """

def probe(layers, x):
    wanted = [parameter for parameter in layers.parameters() if parameter.requires_grad]
    if not wanted or not torch.is_grad_enabled():
        return
    empty = layers(x.new_zeros(0, *x.shape[1:]).requires_grad_())
    assert empty.shape == (0, 8, 26, 40), empty.shape
    gradients = torch.autograd.grad(empty.sum(), wanted)
    assert not any(gradient.count_nonzero() for gradient in gradients)
    twice = [layers(x) for _ in range(2)]
    assert torch.equal(*twice)
    first, second = (torch.autograd.grad(y.square().sum(), wanted) for y in twice)
    assert all(map(torch.equal, first, second))
    for call, words in [
        (lambda: layers(x[0]), "x must be (batch, in_channels, height, width)"),
        (lambda: layers(x[:, :5]), "channels"),
        (lambda: layers(x.double()), "float"),
    ]:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert words in str(error).lower(), error
        else:
            raise AssertionError(f"nothing was raised, expected: {words}")
"""

CONVOLUTION = ("layers.conv_transpose.weight", "layers.conv_transpose.bias")
AFFINE = ("layers.group_norm.weight", "layers.group_norm.bias")
# Where not all gradients are wanted.
GRADIENTS = {
    "input_alone": {"x"},
    "weight_alone": {CONVOLUTION[0]},
    "bias_alone": {CONVOLUTION[1]},
    "affine_alone": {*AFFINE},
}
VARIANTS = {
    "tensor": ("sliced", "far_from_zero", "one_element_groups", "weight_alone"),
    "aten": ("channels_last", "sliced", "odd_address", "far_from_zero", "one_element_groups", "bias_alone"),
    "aten_one_kernel": ("channels_last", "odd_address", "one_element_groups", "affine_alone"),
    "direct": (
        *("channels_last", "sliced", "odd_address", "upright_kernel", "wide_kernel", "long_kernel", "wide_image"),
        *("many_channels", "large_kernel", "one_pixel", "input_alone", "weight_alone"),
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_gradients_on_what_is_unusual(
    variant: str, tmp_path: Path, harness: Callable[..., Any], solution_of: Callable[[str, str], Path]
) -> None:
    cases = VARIANTS[variant]
    problem, solution = tmp_path / "viewed.py", tmp_path / f"{variant}.py"
    problem.write_text(VIEWS + PROBLEM)
    solution.write_text(VIEWS + WRAPPER.format(text=solution_of(STEM, variant).read_text()) + PROBES)
    chosen = [word for case in cases for word in ("--case", case)]
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--seed", "1" * 32, "--json", *chosen)
    told = [(row["case"], row["status"], row["message"]) for row in ran.rows]
    assert told == [(case, "PASSED", "") for case in cases], ran.err
    for row in ran.rows:
        received = {gradient["name"] for gradient in row["gradients"]}
        assert received == GRADIENTS.get(row["case"], {"x", *CONVOLUTION, *AFFINE}), row["case"]


class Twin(NamedTuple):
    """A replacement in a committed solution and what must come of it."""

    name: str
    variant: str
    old: str
    new: str
    case: str
    status: str
    words: str


TWINS = [
    Twin(
        "statistics_over_the_batch",
        "aten",
        "        y, statistics = OPERATORS.forward(z, bias, norm_weight, norm_bias.contiguous(), groups, eps)\n",
        "        batch = z.transpose(0, 1).flatten(1)[None].contiguous()\n"
        "        y, statistics = OPERATORS.forward(batch, bias, norm_weight, norm_bias.contiguous(), groups, eps)\n"
        "        y = y.view(z.shape[1], z.shape[0], *z.shape[2:]).transpose(0, 1).contiguous()\n"
        "        statistics = statistics.expand(2, z.shape[0], groups).contiguous()\n",
        "odd",
        "WRONG_OUTPUT",
        "output",
    ),
    Twin(
        "weight_by_group",
        "aten",
        "rstd[group] * as_float(weight[channel])",
        "rstd[group] * as_float(weight[channel / channels_per_group])",
        "odd",
        "WRONG_OUTPUT",
        "output",
    ),
    Twin(
        "pixels_beyond_the_image_counted",
        "direct",
        "count += grid_pixel(tile, pixel) < tile.end ? 1.0f : 0.0f",
        "count += 1.0f",
        "odd",
        "WRONG_OUTPUT",
        "output",
    ),
    Twin(
        "no_gradient_of_the_convolutions_bias",
        "aten",
        "return dx, dweight, dbias, dnorm_weight",
        "return dx, dweight, None, dnorm_weight",
        "odd",
        "WRONG_GRADIENT",
        "conv_transpose.bias",
    ),
    Twin(
        "slope_of_gelu_forgotten",
        "aten",
        "return a.slope * (rstd *",
        "return (rstd *",
        "odd",
        "WRONG_GRADIENT",
        "gradient of x",
    ),
    Twin(
        "stride_ignored_in_the_gradient_of_the_input",
        "direct",
        "return (row * y.stride + step.phase_y) * x.fine + column * x.stride + step.phase_x;",
        "return (row + step.phase_y) * x.fine + column + step.phase_x;",
        "stride_2",
        "WRONG_GRADIENT",
        "gradient of x",
    ),
    Twin("no_backward", "aten", "def backward(ctx, dy):", "def backwards(ctx, dy):", "odd", "NO_GRADIENT", "backward"),
]


@pytest.fixture(scope="module")
def twin_rows(
    tmp_path_factory: pytest.TempPathFactory, harness: Callable[..., Any], solution_of: Callable[[str, str], Path]
) -> dict[str, dict[str, Any]]:
    """The records of all twins, by name."""
    folder = tmp_path_factory.mktemp("twins")
    rows = {}
    for case in {twin.case for twin in TWINS}:
        paths = []
        for twin in TWINS:
            text = solution_of(STEM, twin.variant).read_text()
            assert twin.old in text, twin.name
            if twin.case == case:
                paths.append(folder / f"{twin.name}.py")
                paths[-1].write_text(text.replace(twin.old, twin.new))
        ran = harness("evaluate", *paths, "--problem", STEM, "--case", case, "--device", "cpu", "--json")
        assert ran.code == 1, ran.err
        rows |= {Path(row["solution"]).stem: row for row in ran.rows}
    return rows


@pytest.mark.parametrize("twin", [pytest.param(twin, id=twin.name) for twin in TWINS])
def test_hostile_twin_gets_its_status(twin: Twin, twin_rows: dict[str, dict[str, Any]]) -> None:
    row = twin_rows[twin.name]
    assert row["status"] == twin.status, row["message"]
    assert twin.words in row["message"]

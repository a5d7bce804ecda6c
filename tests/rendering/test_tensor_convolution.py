"""Tests the convolution on tensor cores: which ones it takes, and what it computes on the emulator and on a GPU."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value

REPOSITORY = Path(__file__).resolve().parents[2]
STEM = "conv_transpose2d_gelu_group_norm"
SMALL: dict[str, Value] = {"convolution": "tensor", "tensor_from": 0}
# x of many magnitudes: those of a sample that fp16 cannot hold, beside those of one that it can.
PROBLEM = """
import torch
import torch.nn as nn

PRECISION = "10-bit"
in_channels, out_channels, height, width, kernel_size, num_groups = 6, 12, 9, 11, 3, 4
scales = (1.0,)

CASES = {
    "tiny_and_huge": {"scales": (1e-12, 1.0, 1e9)},
    # More pixels than a ring holds, and more channels than one product takes at once.
    "many_pixels": {"in_channels": 20, "out_channels": 24, "height": 17, "width": 75},
    "wide_kernel": {"kernel_size": (1, 9), "width": 40},
    "high_kernel": {"kernel_size": (4, 2), "height": 30},
    "beyond_tensor_cores": {"kernel_size": 4},
}


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, groups, num_groups):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)
        self.group_norm = nn.GroupNorm(num_groups=num_groups, num_channels=out_channels)

    def forward(self, x):
        return self.group_norm(nn.functional.gelu(self.conv_transpose(x)))


def get_inputs():
    return [torch.rand(len(scales), in_channels, height, width) * torch.tensor(scales).view(-1, 1, 1, 1)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, 1, 1, num_groups]
"""
ON_TENSOR_CORES = {"correlate", "gradient_halves", "sum_weight_gradient"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A solution that convolves small images on tensor cores, too."""
    path = tmp_path_factory.mktemp("small") / "small.py"
    path.write_text(render_text(REPOSITORY, find_template(REPOSITORY, STEM), SMALL))
    return path


def names_of(row: dict[str, Any]) -> str:
    """The names of all kernels that ran."""
    return " ".join(use["name"] for found in row["kernels"].values() for use in found)


def test_magnitudes_kernels_and_widths(small: Path, tmp_path: Path, harness: Callable[..., Any]) -> None:
    problem = tmp_path / "shapes.py"
    problem.write_text(PROBLEM)
    cases = ("tiny_and_huge", "many_pixels", "wide_kernel", "high_kernel", "beyond_tensor_cores")
    chosen = [word for case in cases for word in ("--case", case)]
    ran = harness("evaluate", small, "--problem", problem, "--device", "cpu", "--seed", "4" * 32, "--json", *chosen)
    assert {(row["case"], row["status"]) for row in ran.rows} == {(case, "PASSED") for case in cases}, ran.out + ran.err
    for row in ran.rows:
        found = {name for name in ON_TENSOR_CORES if name in names_of(row)}
        assert found == (set() if row["case"] == "beyond_tensor_cores" else ON_TENSOR_CORES), row["case"]


def test_small_batches_have_torch_convolve(harness: Callable[..., Any]) -> None:
    ran = harness("evaluate", f"{STEM}/tensor", "--case", "odd", "--device", "cpu", "--json")
    (row,) = ran.rows
    assert row["status"] == "PASSED", row["message"]
    assert "correlate" not in names_of(row)


def test_the_emulator_finds_nothing_in_a_small_convolution(small: Path, harness: Callable[..., Any]) -> None:
    """wgmma, the ring, its barriers and bulk copies both ways, all accesses checked."""
    ran = harness("check", small, "--problem", STEM, "--case", "odd", "--json")
    (row,) = ran.rows
    assert row["status"] == "PASSED", ran.out + ran.err
    assert all(name in names_of(row) for name in ON_TENSOR_CORES)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("place - y * c.pitch - x", "place - y * c.pitch", "WRONG_OUTPUT"),
        (
            "c.farthest - tap / c.kernel_x * c.pitch - tap % c.kernel_x",
            "c.farthest - tap / c.kernel_x * c.pitch",
            "WRONG_GRADIENT",
        ),
        ("return launch_correlate<Pass::kRescue>(c, device, stream);", "return status;", "WRONG_OUTPUT"),
    ],
    ids=["taps_of_a_row_at_one_place", "the_same_in_the_weights_gradient", "nobody_is_rescued"],
)
def test_hostile_twin_gets_its_status(
    small: Path, tmp_path: Path, harness: Callable[..., Any], old: str, new: str, status: str
) -> None:
    problem, twin = tmp_path / "shapes.py", tmp_path / "twin.py"
    problem.write_text(PROBLEM)
    text = small.read_text()
    assert old in text
    twin.write_text(text.replace(old, new))
    case = ("--case", "tiny_and_huge")
    ran = harness("evaluate", twin, "--problem", problem, *case, "--device", "cpu", "--seed", "5" * 32, "--json")
    assert [row["status"] for row in ran.rows] == [status], ran.out + ran.err


@pytest.fixture(scope="module")
def solution(small: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("small_solution", small)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gradients_of(layers: torch.nn.Module, x: torch.Tensor, dy: torch.Tensor) -> list[torch.Tensor]:
    """y and the gradients of x and of all parameters."""
    x = x.detach().requires_grad_()
    y = layers(x)
    return [y.detach(), *torch.autograd.grad(y, [x, *layers.parameters()], dy)]


# (batch, in, height, width), out channels, kernel, groups.
SHAPES = [
    ((3, 64, 40, 52), 64, 3, 8),
    ((2, 33, 70, 61), 40, 2, 5),
    ((5, 64, 30, 30), 64, 1, 16),
    ((2, 7, 33, 270), 9, 3, 3),
    ((1, 64, 258, 256), 64, 3, 8),
    ((140, 20, 8, 9), 63, 3, 7),
]


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape_and_cotangent(
    solution: ModuleType, shape: tuple[tuple[int, int, int, int], int, int, int], scale: float
) -> None:
    size, out, kernel, groups = shape
    torch.manual_seed(1)
    layers = solution.ModelNew(size[1], out, kernel, 1, 1, groups).cuda()
    exact = torch.nn.Sequential(
        torch.nn.ConvTranspose2d(size[1], out, kernel), torch.nn.GELU(), torch.nn.GroupNorm(groups, out)
    )
    exact.load_state_dict(dict(zip(exact.state_dict(), layers.state_dict().values(), strict=True)))
    x = torch.rand(size, device="cuda")
    dy = torch.randn(size[0], out, size[2] + kernel - 1, size[3] + kernel - 1, device="cuda") * scale
    received = gradients_of(layers, x, dy)
    expected = gradients_of(exact.cuda().double(), x.double(), dy.double())
    for ours, right in zip(received, expected, strict=True):
        assert float((ours - right).norm() / right.norm()) < 1e-3
    assert all(map(torch.equal, received, gradients_of(layers, x, dy)))


@pytest.mark.gpu
def test_a_sample_that_is_not_finite_spoils_itself_alone(solution: ModuleType) -> None:
    layers = solution.ModelNew(16, 32, 3, 1, 1, 4).cuda()
    x = torch.rand(4, 16, 40, 40, device="cuda")
    clean = layers(x)
    x[1, 3, 5, 7], x[2, 0, 0, 0] = math.inf, math.nan
    y = layers(x)
    assert bool(y[1:3].isnan().all())
    assert torch.equal(y[::3], clean[::3])


@pytest.mark.gpu
def test_memory_that_was_just_mapped_changes_no_bit(solution: ModuleType) -> None:
    """Stores are slow there, so that warpgroups meet in other orders."""
    layers = solution.ModelNew(64, 64, 3, 1, 1, 8).cuda()
    x = torch.rand(128, 64, 256, 256, device="cuda")
    with torch.no_grad():
        first = layers(x)
        for _ in range(30):
            torch.cuda.empty_cache()
            assert torch.equal(layers(x), first)

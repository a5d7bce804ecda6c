"""Tests the convolution on tensor cores: which ones it takes, and what it computes on the emulator and on a GPU."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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
in_channels, out_channels, height, width, kernel_size, stride, num_groups = 6, 12, 9, 11, 3, 1, 4
scales = (1.0,)

CASES = {
    "tiny_and_huge": {"scales": (1e-12, 1.0, 1e9)},
    # More pixels than a ring holds, and more channels than one product takes at once.
    "many_pixels": {"in_channels": 20, "out_channels": 24, "height": 17, "width": 75},
    "wide_kernel": {"kernel_size": (1, 9), "width": 40},
    "high_kernel": {"kernel_size": (4, 2), "height": 30},
    "beyond_tensor_cores": {"kernel_size": 4},
    # Two samples, whose pixels blocks share.
    "checked": {"scales": (1.0, 1.0), "in_channels": 20, "out_channels": 24, "height": 9, "width": 21},
    "checked_stride_2": {
        "scales": (1.0, 1.0),
        "in_channels": 20,
        "out_channels": 23,
        "height": 9,
        "width": 21,
        "stride": 2,
        "num_groups": 1,
    },
    "stride_2": {"stride": 2, "scales": (1e-12, 1.0, 1e9)},
    # Whole turns beside those that reach the end of a row; rows of an odd width.
    "stride_2_many_pixels": {
        "in_channels": 20,
        "out_channels": 23,
        "height": 6,
        "width": 131,
        "stride": 2,
        "num_groups": 1,
    },
    "kernel_2_stride_2": {"kernel_size": 2, "stride": 2, "width": 64},
    "width_1_stride_2": {"kernel_size": 2, "stride": 2, "height": 40, "width": 1},
    "width_1_strides_1_and_2": {"kernel_size": (1, 2), "stride": (1, 2), "height": 140, "width": 1},
    "kernel_4_stride_2": {"kernel_size": 4, "stride": 2, "height": 14},
    "high_kernel_stride_2": {"kernel_size": (5, 3), "stride": 2},
    "strides_1_and_2": {"kernel_size": (3, 2), "stride": (1, 2)},
    "strides_2_and_1": {"stride": (2, 1)},
    "stride_3": {"stride": 3},
    "kernel_1_stride_2": {"kernel_size": 1, "stride": 2},
    "kernel_5_stride_2": {"kernel_size": 5, "stride": 2},
    # Rows whose pixels no product with a reciprocal tells apart.
    "wide_rows": {"in_channels": 1, "out_channels": 2, "num_groups": 1, "height": 1, "width": 300000, "kernel_size": 1},
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
    return [in_channels, out_channels, kernel_size, stride, 1, num_groups]
"""
ON_TENSOR_CORES = {"correlate", "gradient_halves", "sum_weight_gradient"}
STRIDED = {"correlate_phases", "gather_phases", "gradient_halves", "sum_weight_gradient"}
KERNELS_OF: dict[str, set[str]] = {
    "tiny_and_huge": ON_TENSOR_CORES,
    "many_pixels": ON_TENSOR_CORES,
    "wide_kernel": ON_TENSOR_CORES,
    "high_kernel": ON_TENSOR_CORES,
    "beyond_tensor_cores": set(),
    "stride_2": STRIDED,
    "stride_2_many_pixels": STRIDED,
    "kernel_2_stride_2": STRIDED,
    "width_1_stride_2": set(),
    "width_1_strides_1_and_2": set(),
    "kernel_4_stride_2": STRIDED,
    "high_kernel_stride_2": STRIDED,
    "strides_1_and_2": STRIDED,
    "strides_2_and_1": set(),
    "stride_3": set(),
    "kernel_1_stride_2": set(),
    "kernel_5_stride_2": set(),
    "wide_rows": set(),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A solution that convolves small images on tensor cores, too."""
    path = tmp_path_factory.mktemp("small") / "small.py"
    path.write_text(render_text(REPOSITORY, find_template(REPOSITORY, STEM), SMALL))
    return path


def names_of(row: dict[str, Any]) -> set[str]:
    """The names of those kernels of the convolution that ran."""
    names = {use["name"].split("<")[0] for found in row["kernels"].values() for use in found}
    return names & (ON_TENSOR_CORES | STRIDED)


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    problem = tmp_path / "shapes.py"
    problem.write_text(PROBLEM)
    return problem


def test_magnitudes_kernels_widths_and_strides(small: Path, shapes: Path, harness: Callable[..., Any]) -> None:
    chosen = [word for case in KERNELS_OF for word in ("--case", case)]
    ran = harness("evaluate", small, "--problem", shapes, "--device", "cpu", "--seed", "4" * 32, "--json", *chosen)
    received = {row["case"]: (row["status"], names_of(row)) for row in ran.rows}
    assert received == {case: ("PASSED", kernels) for case, kernels in KERNELS_OF.items()}, ran.out + ran.err


def test_small_batches_have_torch_convolve(harness: Callable[..., Any]) -> None:
    ran = harness("evaluate", f"{STEM}/tensor", "--case", "odd", "--device", "cpu", "--json")
    (row,) = ran.rows
    assert row["status"] == "PASSED", row["message"]
    assert not names_of(row)


def test_the_emulator_finds_nothing_in_a_small_convolution(
    small: Path, shapes: Path, harness: Callable[..., Any]
) -> None:
    """wgmma, the ring, its barriers and bulk copies both ways, all accesses checked."""
    kernels = {"checked": ON_TENSOR_CORES, "checked_stride_2": STRIDED}
    chosen = [word for case in kernels for word in ("--case", case)]
    ran = harness("check", small, "--problem", shapes, *chosen, "--json")
    received = {row["case"]: (row["status"], names_of(row)) for row in ran.rows}
    assert received == {case: ("PASSED", names) for case, names in kernels.items()}, ran.out + ran.err


class Twin(NamedTuple):
    """A fault in the solution, and what comes of it."""

    case: str
    right: str
    wrong: str
    status: str


TWINS = {
    "taps_of_a_row_at_one_place": Twin("same", "place - y * c.pitch - x", "place - y * c.pitch", "WRONG_OUTPUT"),
    "the_same_in_the_weights_gradient": Twin(
        "same",
        "c.farthest - tap / c.kernel_x * c.pitch - tap % c.kernel_x",
        "c.farthest - tap / c.kernel_x * c.pitch",
        "WRONG_GRADIENT",
    ),
    "nobody_is_rescued": Twin(
        "same", "launch_correlate<Pass::kRescue>(c, device, stream)", "LaunchStatus(status)", "WRONG_OUTPUT"
    ),
    "taps_of_a_phase_at_one_place": Twin("strided", "from_row - x / kStride", "from_row", "WRONG_OUTPUT"),
    "moments_of_pixels_behind_a_row": Twin(
        "strided", "is_whole ? 0 : existing_values(p, first + lane % 4 * 2)", "~0u", "WRONG_OUTPUT"
    ),
    "no_phase_is_rescued": Twin(
        "strided",
        "launch_correlate_phases<Pass::kRescue>(phases, device, stream)",
        "LaunchStatus(status)",
        "WRONG_OUTPUT",
    ),
    "the_same_in_the_gradient_of_a_phase": Twin("strided", "pixels + x / kStride", "pixels", "WRONG_GRADIENT"),
    "all_phases_as_the_first": Twin("strided", "s.first_tap + ", "0 + ", "WRONG_GRADIENT"),
}
HONEST = {"honest": "same", "honest_strided": "strided"}
# One build has all faults: the case chooses one.
CHOICE = """
#include <cstdlib>
#include <cstring>
inline bool is_twin(const char* name) { const char* twin = std::getenv("TWIN"); return std::strcmp(twin, name) == 0; }
"""
CHOSEN = """
import os


class Chosen(ModelNew):
    def __init__(self, *arguments):
        *others, os.environ["TWIN"] = arguments
        super().__init__(*others)


ModelNew = Chosen
"""


@pytest.fixture(scope="session")
def twin_rows(
    harness: Callable[..., Any], made_once: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """The records of all twins by their names."""

    def judged() -> dict[str, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("twins")
        problem, solution = folder / "twins.py", folder / "all_twins.py"
        sizes = {"same": {"scales": (1e-12, 1.0, 1e9)}, "strided": {"scales": (1e-12, 1.0, 1e9), "stride": 2}}
        shapes = {**HONEST, **{name: twin.case for name, twin in TWINS.items()}}
        cases = {name: {**sizes[shape], "twin": name} for name, shape in shapes.items()}
        text = PROBLEM.replace("groups, num_groups):", "groups, num_groups, twin):")
        text = text.replace("1, num_groups]", "1, num_groups, twin]")
        problem.write_text(f"{text}\ntwin = ''\nCASES = {cases}\n")
        text = render_text(REPOSITORY, find_template(REPOSITORY, STEM), SMALL)
        for name, twin in TWINS.items():
            assert text.count(twin.right) == 1
            both = f'(is_twin("{name}") ? {twin.wrong.rstrip(" +")} : ({twin.right.rstrip(" +")}))'
            text = text.replace(twin.right, f"{both} + " if twin.right.endswith(" + ") else both)
        solution.write_text(text.replace('CUDA_SOURCE = r"""', f'CUDA_SOURCE = r"""{CHOICE}') + CHOSEN)
        chosen = [word for case in cases for word in ("--case", case)]
        seed = ("--seed", "5" * 32)
        ran = harness("evaluate", solution, "--problem", problem, *chosen, "--device", "cpu", *seed, "--json")
        assert ran.rows, ran.err
        return {row["case"]: row for row in ran.rows}

    return made_once("convolution_twins", judged)


@pytest.mark.parametrize("name", HONEST)
def test_the_twins_without_a_fault_pass(twin_rows: dict[str, dict[str, Any]], name: str) -> None:
    assert twin_rows[name]["status"] == "PASSED", twin_rows[name]["message"]


@pytest.mark.parametrize("name", TWINS)
def test_hostile_twin_gets_its_status(twin_rows: dict[str, dict[str, Any]], name: str) -> None:
    assert twin_rows[name]["status"] == TWINS[name].status, twin_rows[name]["message"]


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


# (batch, in, height, width), out channels, kernel, stride, groups.
SHAPES = [
    ((3, 64, 40, 52), 64, 3, 1, 8),
    ((2, 33, 70, 61), 40, 2, 1, 5),
    ((5, 64, 30, 30), 64, 1, 1, 16),
    ((2, 7, 33, 270), 9, 3, 1, 3),
    ((1, 64, 258, 256), 64, 3, 1, 8),
    ((140, 20, 8, 9), 63, 3, 1, 7),
    ((3, 64, 40, 52), 64, 3, 2, 8),
    ((2, 33, 70, 61), 40, 2, 2, 5),
    ((5, 64, 30, 30), 64, 4, 2, 16),
    ((2, 7, 33, 567), 9, 3, 2, 3),
    ((1, 64, 258, 256), 64, 4, 2, 8),
    ((140, 20, 8, 9), 63, 3, 2, 7),
    ((8, 64, 128, 128), 64, 2, 2, 8),
    ((2, 33, 31, 200), 40, (3, 2), (1, 2), 5),
    ((2, 24, 31, 200), 40, (5, 3), 2, 5),
]


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape_and_cotangent(solution: ModuleType, shape: tuple[Any, ...], scale: float) -> None:
    size, out, kernel, stride, groups = shape
    torch.manual_seed(1)
    layers = solution.ModelNew(size[1], out, kernel, stride, 1, groups).cuda()
    exact = torch.nn.Sequential(
        torch.nn.ConvTranspose2d(size[1], out, kernel, stride), torch.nn.GELU(), torch.nn.GroupNorm(groups, out)
    )
    exact.load_state_dict(dict(zip(exact.state_dict(), layers.state_dict().values(), strict=True)))
    exact = exact.cuda().double()
    x = torch.rand(size, device="cuda")
    dy = torch.randn(exact(x.double()).shape, device="cuda") * scale
    received = gradients_of(layers, x, dy)
    expected = gradients_of(exact, x.double(), dy.double())
    for ours, right in zip(received, expected, strict=True):
        assert float((ours - right).norm() / right.norm()) < 1e-3
    assert all(map(torch.equal, received, gradients_of(layers, x, dy)))


@pytest.mark.gpu
@pytest.mark.parametrize("stride", [1, 2])
def test_a_sample_that_is_not_finite_spoils_itself_alone(solution: ModuleType, stride: int) -> None:
    layers = solution.ModelNew(16, 32, 3, stride, 1, 4).cuda()
    x = torch.rand(4, 16, 40, 40, device="cuda")
    clean = layers(x)
    x[1, 3, 5, 7], x[2, 0, 0, 0] = math.inf, math.nan
    y = layers(x)
    assert bool(y[1:3].isnan().all())
    assert torch.equal(y[::3], clean[::3])


@pytest.mark.gpu
@pytest.mark.parametrize(("stride", "size"), [(1, (128, 64, 256, 256)), (2, (64, 64, 128, 128))])
def test_memory_that_was_just_mapped_changes_no_bit(
    solution: ModuleType, stride: int, size: tuple[int, int, int, int]
) -> None:
    """Stores are slow there, so that warpgroups meet in other orders."""
    layers = solution.ModelNew(64, 64, 3, stride, 1, 8).cuda()
    x = torch.rand(size, device="cuda")
    dy = torch.randn_like(layers(x))
    first = gradients_of(layers, x, dy)
    for _ in range(30):
        torch.cuda.empty_cache()
        assert all(map(torch.equal, gradients_of(layers, x, dy), first))

"""Tests the product of fp16 halves: which products it takes, compiled for the host; and, on a GPU, what it computes."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.emulator.compiler import find_compiler
from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value

REPOSITORY = Path(__file__).resolve().parents[2]
STEM = "gemm_bias_add_hardtanh_mish_group_norm"
SOLUTION = REPOSITORY / "solutions" / STEM / "split.py"
FULL = (1024, 8192, 8192)
PROGRAM = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
enum cudaDeviceAttr {{ cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor }};
constexpr int cudaSuccess = 0;
int values[2];
inline int cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {{ *value = values[attribute]; return 0; }}
inline int64_t ceil_div(int64_t a, int64_t b) {{ return (a + b - 1) / b; }}
constexpr int kTile = 128, kStep = 32, kLine = 128, kClusterM = 1, kClusterN = 2, kSplitFrom = 30;
inline int64_t steps_of(int64_t depth) {{ return ceil_div(depth, kStep); }}
struct Operand {{
  const float* values;
  int64_t extent;
  bool depth_runs;
}};
{choice}
int main(int, char** words) {{
  values[0] = atoi(words[4]);
  values[1] = atoi(words[5]);
  const Operand left = {{nullptr, atoll(words[1]), true}}, right = {{nullptr, atoll(words[2]), atoi(words[6]) == 0}};
  printf("%lld", static_cast<long long>(split_scratch(left, right, atoll(words[3]), 0)));
}}
"""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., int]:
    """Bytes of scratch memory of a product (m, n, k) on a device of a compute capability; 0 if torch multiplies."""
    folder = tmp_path_factory.mktemp("choice")
    text = SOLUTION.read_text()
    found = re.search(r"\n(// Below any of these,.*?\nint64_t split_scratch\(.*?\n\}\n)", text, re.DOTALL)
    assert found is not None
    (folder / "choice.cpp").write_text(PROGRAM.format(choice=found[1]))
    command = [*find_compiler().command, "-std=c++17", "-Werror", "choice.cpp", "-o", "choice"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)

    def bytes_of(m: int, n: int, k: int, capability: tuple[int, int] = (9, 0), is_transposed: bool = False) -> int:
        words = [str(word) for word in (m, n, k, *capability, int(is_transposed))]
        return int(subprocess.run([folder / "choice", *words], check=True, capture_output=True, timeout=60).stdout)

    return bytes_of


def test_scratch_holds_both_matrices_and_their_counters(scratch: Callable[..., int]) -> None:
    m, n, k = FULL
    assert scratch(*FULL) == 4 * (m + n) * k + 4 * (m + n + 1 + n // 128)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 1), (10, 0), (12, 0)])
def test_other_devices_have_torch_multiply(scratch: Callable[..., int], capability: tuple[int, int]) -> None:
    assert scratch(*FULL, capability) == 0


@pytest.mark.parametrize(
    ("shape", "is_split"),
    [
        ((256, 8192, 8192), True),
        ((255, 8192, 8192), False),
        ((8192, 256, 8192), True),
        ((8192, 255, 8192), False),
        ((1024, 1024, 1024), True),
        ((512, 1024, 8192), False),
        ((1024, 1024, 1023), False),
        ((1 << 22, 256, 32), True),
        ((1 << 23, 256, 32), False),
        ((0, 8192, 8192), False),
        ((8192, 8192, 0), False),
    ],
    ids=str,
)
def test_small_matrices_have_torch_multiply(
    scratch: Callable[..., int], shape: tuple[int, int, int], is_split: bool
) -> None:
    assert (scratch(*shape) > 0) == is_split


@pytest.mark.parametrize(
    ("shape", "is_split"),
    [((256, 4096, 1024), False), ((256, 8192, 1024), True), ((511, 4112, 512), False), ((512, 4096, 512), True)],
    ids=str,
)
def test_a_matrix_to_be_transposed_needs_more_rows_or_more_work(
    scratch: Callable[..., int], shape: tuple[int, int, int], is_split: bool
) -> None:
    assert (scratch(*shape, is_transposed=True) > 0) == is_split
    assert scratch(*shape) > 0


def test_the_emulator_finds_nothing_in_a_small_product(tmp_path: Path, harness: Callable[..., Any]) -> None:
    """wgmma, clusters, copies to several blocks and the ring of stages, all accesses checked."""
    settings: dict[str, Value] = {"gemm": "split", "split_from": 0}
    path = tmp_path / "small.py"
    path.write_text(render_text(REPOSITORY, find_template(REPOSITORY, STEM), settings))
    ran = harness("check", path, "--problem", STEM, "--case", "cpu", "--forward-only", "--json")
    (row,) = ran.rows
    assert row["status"] == "PASSED", ran.out + ran.err
    assert "multiply_split" in {kernel["name"] for kernel in row["kernels"]["forward"]}


@pytest.fixture(scope="module")
def multiply(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., torch.Tensor]:
    """The operator of a solution that takes matrices of any size, so that it must take what it is given."""
    path = tmp_path_factory.mktemp("split") / "split_solution.py"
    path.write_text(render_text(REPOSITORY, find_template(REPOSITORY, STEM), {"gemm": "split", "split_from": 0}))
    spec = importlib.util.spec_from_file_location("split_solution", path)
    assert spec is not None
    assert spec.loader is not None
    solution = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(solution)

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        result = solution.OPERATORS.multiply(left, right)
        assert isinstance(result, torch.Tensor)
        return result

    return product


def matrix(rows: int, columns: int, seed: int, is_transposed: bool = False) -> torch.Tensor:
    """Normal values on the GPU, contiguous or transposed so."""
    generator = torch.Generator("cuda").manual_seed(seed)
    shape = (columns, rows) if is_transposed else (rows, columns)
    drawn = torch.randn(shape, device="cuda", generator=generator)
    return drawn.t() if is_transposed else drawn


def relative_error(received: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative L2 error against float64; NaN if anything is not finite."""
    return float((received.double() - expected).norm() / expected.norm())


# Neither tiles, steps, vectors nor clusters divide most of these; the last ones split rows beside the product.
SHAPES = [
    (256, 4096, 1024),
    (300, 3500, 1031),
    (257, 4099, 1025),
    (511, 4096, 8200),
    (1020, 1030, 20001),
    (8192, 512, 260),
    (1030, 1026, 1028),
    (1024, 5000, 2052),
    (2051, 8190, 516),
]


@pytest.mark.gpu
@pytest.mark.parametrize("right_transposed", [False, True])
@pytest.mark.parametrize("left_transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_shape_in_any_layout(
    multiply: Callable[..., torch.Tensor], shape: tuple[int, int, int], left_transposed: bool, right_transposed: bool
) -> None:
    m, n, k = shape
    left, right = matrix(m, k, 1, left_transposed), matrix(k, n, 2, right_transposed)
    received = multiply(left, right)
    assert relative_error(received, left.double() @ right.double()) < 1e-6
    assert torch.equal(received, multiply(left, right))


@pytest.mark.gpu
@pytest.mark.parametrize("scales", [(1e-38, 1.0), (1e-30, 1.0), (1e30, 1.0), (1e-15, 1e-15), (1e19, 1e17)], ids=str)
def test_tiny_and_huge_values_keep_their_bits(
    multiply: Callable[..., torch.Tensor], scales: tuple[float, float]
) -> None:
    left, right = matrix(1024, 2048, 1) * scales[0], matrix(2048, 1024, 2, is_transposed=True) * scales[1]
    assert relative_error(multiply(left, right), left.double() @ right.double()) < 1e-6


@pytest.mark.gpu
def test_rows_of_all_magnitudes_keep_their_bits(multiply: Callable[..., torch.Tensor]) -> None:
    exponents = (torch.arange(1024, device="cuda") % 61 - 30).float()
    left, right = matrix(1024, 2048, 1) * 10.0 ** exponents[:, None], matrix(2048, 1024, 2, is_transposed=True)
    received, expected = multiply(left, right), left.double() @ right.double()
    errors = (received.double() - expected).norm(dim=1) / expected.norm(dim=1)
    assert float(errors.max()) < 2e-6


@pytest.mark.gpu
@pytest.mark.parametrize("right_transposed", [False, True])
def test_infinities_and_nan_come_out_as_torchs(multiply: Callable[..., torch.Tensor], right_transposed: bool) -> None:
    left, right = matrix(1024, 4096, 1), matrix(4096, 1032, 2, right_transposed)
    right[4] = 0.0
    left[3, 5], left[7, 9], left[30, 4] = math.inf, math.nan, math.inf  # the last one meets zeros
    left[9, 9], left[9, 10] = math.inf, -math.inf
    right[13, 11], right[100, 2] = -math.inf, math.nan
    received, expected = multiply(left, right), left @ right
    assert torch.equal(received.isnan(), expected.isnan())
    assert torch.equal(received.isinf(), expected.isinf())
    assert torch.equal(received[received.isinf()], expected[expected.isinf()])
    finite = expected.isfinite()
    assert relative_error(received[finite], expected[finite].double()) < 2e-6


@pytest.mark.gpu
def test_the_judge_passes_it_where_it_multiplies(harness: Callable[..., Any]) -> None:
    sizes = {"batch_size": 1030, "in_features": 1036, "out_features": 1100, "num_groups": 50}
    chosen = [word for name, size in sizes.items() for word in ("--set", f"{name}={size}")]
    ran = harness("evaluate", f"{STEM}/split", "--device", "cuda:0", "--no-timing", "--json", *chosen)
    (row,) = ran.rows
    assert row["status"] == "PASSED", row["message"]
    names = {direction: [use["name"] for use in found] for direction, found in row["kernels"].items()}
    assert all("multiply_split" in name for name in (" ".join(names["forward"]), " ".join(names["backward"])))

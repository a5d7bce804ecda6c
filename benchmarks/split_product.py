"""The product of fp16 halves (`multiply` of gemm=split) against torch's in float32: errors over distributions, times.

    python3 -m benchmarks.split_product

Errors are relative L2 against float64, and the largest error of an element over |left| |right|, at 1024 x 8192 x 8192.
Times are medians of 15 calls with all splitting in them, without and with a right matrix that is transposed on the way.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator

import torch

from benchmarks.common import gpu, milliseconds, program, say, table
from benchmarks.group_norm_shapes import module_of
from harness.project.paths import project_root

SOLUTION = "solutions/gemm_bias_add_hardtanh_mish_group_norm/split.py"
FULL = (1024, 8192, 8192)
SHAPES = (
    FULL,
    (8192, 8192, 1024),
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (1024, 1024, 1024),
    (512, 512, 4096),
    (1, 8192, 8192),
    (16, 8192, 8192),
    (64, 8192, 8192),
    (128, 8192, 8192),
    (200, 8192, 8192),
    (256, 8192, 8192),
    (384, 8192, 8192),
    (512, 8192, 8192),
    (2048, 8192, 8192),
    (256, 4096, 1024),
    (256, 4096, 2048),
    (256, 8192, 1024),
    (512, 4096, 512),
    (512, 4096, 1024),
    (4096, 4096, 64),
    (4096, 4096, 256),
    (8192, 256, 8192),
    (1024, 1024, 65536),
    (300, 5000, 3000),
    (777, 1111, 3333),
    (1000, 1000, 1000),
    (1023, 8191, 8193),
    (5000, 300, 30000),
)
Multiply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Draw = Callable[[int, int], torch.Tensor]


def normal(rows: int, columns: int, scale: float = 1.0) -> torch.Tensor:
    """Normal values times a scale."""
    return torch.randn(rows, columns, device="cuda") * scale


def uniform(rows: int, columns: int) -> torch.Tensor:
    """Values between 0 and 1, as the problems' inputs."""
    return torch.rand(rows, columns, device="cuda")


def weights(rows: int, columns: int) -> torch.Tensor:
    """Values as torch.nn.Linear draws them."""
    return (2 * uniform(rows, columns) - 1) / math.sqrt(columns)


def cauchy(rows: int, columns: int) -> torch.Tensor:
    """Heavy tails: neither mean nor variance exist."""
    return torch.empty(rows, columns, device="cuda").cauchy_()


def scaled_rows(rows: int, columns: int) -> torch.Tensor:
    """Every row by 1e-15, 1 or 1e15."""
    return normal(rows, columns) * 10.0 ** (15 * torch.randint(-1, 2, (rows, 1), device="cuda").float())


#: What is drawn for the left matrix, and for the right one transposed.
DRAWS: dict[str, tuple[Draw, Draw]] = {
    "uniform, weights": (uniform, weights),
    "normal": (normal, normal),
    "uniform, uniform": (uniform, uniform),
    "heavy-tailed, weights": (cauchy, weights),
    "heavy-tailed, heavy-tailed": (cauchy, cauchy),
    "rows by 1e-15, 1, 1e15; weights": (scaled_rows, weights),
    "normal by 1e-38 (subnormal), normal": (lambda m, k: normal(m, k, 1e-38), normal),
    "normal by 1e-30, normal": (lambda m, k: normal(m, k, 1e-30), normal),
    "normal by 1e30, normal": (lambda m, k: normal(m, k, 1e30), normal),
    "normal by 1e-15, both": (lambda m, k: normal(m, k, 1e-15), lambda m, k: normal(m, k, 1e-15)),
}


def operands() -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Name, left and right matrix of every distribution."""
    m, n, k = FULL
    for name, (draw_left, draw_right) in DRAWS.items():
        yield name, draw_left(m, k), draw_right(n, k).t()
    half = normal(m, k // 2)
    left = torch.cat([half, half + normal(m, k // 2, 1e-4)], dim=1)
    right = normal(n, k // 2)
    yield "cancelling", left, torch.cat([right, -right], dim=1).t()


def three_products(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The same by torch alone: three products of fp16, without scales."""
    left_high, right_high = left.half(), right.half()
    left_low, right_low = (left - left_high.float()).half(), (right - right_high.float()).half()
    pairs = ((left_high, right_high), (left_high, right_low), (left_low, right_high))
    return sum((torch.mm(one, other, out_dtype=torch.float32) for one, other in pairs), torch.zeros(()).cuda())


def errors(multiply: Multiply) -> str:
    """A table of distributions."""
    ways: dict[str, Multiply] = {"split": multiply, "torch float32": torch.mm, "three fp16 torch.mm": three_products}
    rows = []
    for name, left, right in operands():
        exact = left.double() @ right.double()
        bound = left.double().abs() @ right.double().abs()
        row = [name]
        for way in ways.values():
            wrong = way(left, right).double() - exact
            row += [f"{wrong.norm() / exact.norm():.1e}", f"{(wrong.abs() / bound).max():.1e}"]
        rows.append(row)
    return table(["drawn", *(f"{way}: {norm}" for way in ways for norm in ("L2", "largest"))], rows)


def median_ms(multiply: Multiply, left: torch.Tensor, right: torch.Tensor) -> float:
    """Median of 15 calls after four more, in milliseconds."""
    for _ in range(4):
        multiply(left, right)
    return statistics.median(milliseconds(lambda: multiply(left, right)) for _ in range(15))


def times(multiply: Multiply) -> str:
    """A table of shapes."""
    rows = []
    for m, n, k in SHAPES:
        left, right, other = normal(m, k), normal(n, k).t(), normal(k, n)
        row: list[object] = [f"{m} x {n} x {k}"]
        for matrix in (right, other):
            split, eager = median_ms(multiply, left, matrix), median_ms(torch.mm, left, matrix)
            row += [f"{split:.3f}", f"{eager:.3f}", f"{eager / split:.2f}x"]
        rows.append(row)
    names = ("split ms", "torch ms", "speedup")
    return table(["m x n x k", *names, *(f"transposing: {name}" for name in names)], rows)


def main() -> int:
    """Print both tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda:0")
    torch.cuda.set_device(gpu(options.parse_args().device))
    torch.manual_seed(0)
    solution = module_of(project_root() / SOLUTION)
    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(errors(solution.multiply))
    print(times(solution.multiply))
    return 0


if __name__ == "__main__":
    sys.exit(program(main))

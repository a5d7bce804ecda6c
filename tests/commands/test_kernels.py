"""Tests the kernels that a record, the table and ``show`` report, and candidates that launch none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(5, 7)]


def get_init_inputs():
    return []
"""
PLAIN = """
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2 + 1
"""
# Two kernels forward, one of them twice and one a template in a namespace; one backward.
OWN = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
namespace inner {
template <int kFactor>
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * kFactor;
}
}
extern "C" __global__ void add_half(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 0.5f;
}
torch::Tensor doubled(torch::Tensor x) {
  auto y = torch::empty_like(x);
  inner::twice<2><<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = doubled(x);
  for (int i = 0; i < 2; ++i) add_half<<<(x.numel() + 63) / 64, 64>>>(y.data_ptr<float>(), x.numel());
  return y;
}
"""
kernels = load_inline(
    "line", "torch::Tensor forward(torch::Tensor x); torch::Tensor doubled(torch::Tensor x);", SOURCE,
    functions=["forward", "doubled"],
)


class Line(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return kernels.forward(x.contiguous())

    @staticmethod
    def backward(ctx, dy):
        return kernels.doubled(dy.contiguous())


class ModelNew(nn.Module):
    def forward(self, x):
        return Line.apply(x)
'''


def write(folder: Path, solution: str) -> tuple[Path, Path]:
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "answer.py").write_text(solution)
    return folder / "answer.py", folder / "problem.py"


def uses(row: dict[str, Any]) -> dict[str, list[tuple[str, int, bool]]]:
    return {
        direction: [(use["name"].rpartition("::")[2].partition("<")[0], use["calls"], use["own"]) for use in found]
        for direction, found in row["kernels"].items()
    }


def test_own_kernels_are_counted_in_order(
    tmp_path: Path, harness: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    solution, problem = write(tmp_path, OWN)
    monkeypatch.setenv("HARNESS_HOME", str(tmp_path / "home"))
    options = ("--problem", problem, "--device", "cpu")
    (row,) = harness("evaluate", solution, *options, "--json").rows
    assert row["status"] == "PASSED", row["message"]
    assert uses(row) == {"forward": [("twice", 1, True), ("add_half", 2, True)], "backward": [("twice", 1, True)]}
    assert row["findings"] == []
    assert row["own_share"] == 1.0
    assert all(use["device_ms"] is None for found in row["kernels"].values() for use in found)
    table = harness("evaluate", solution, *options, "-v").out
    assert "forward twice, add_half; backward twice" in " ".join(table.split())  # a long path wraps the line
    shown = harness("show", row["record"]).out
    assert "forward: add_half, 2 times, its own" in shown
    (short,) = harness("evaluate", solution, *options, "--json", "--forward-only").rows
    assert uses(short) == {"forward": [("twice", 1, True), ("add_half", 2, True)]}


def test_a_solution_without_a_kernel_is_told_so(tmp_path: Path, harness: Callable[..., Any]) -> None:
    solution, problem = write(tmp_path, PLAIN)
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--json")
    (row,) = ran.rows
    assert (row["status"], ran.code) == ("PASSED", 0)
    assert row["kernels"] == {"forward": [], "backward": []}
    assert [finding["kind"] for finding in row["findings"]] == ["no-own-kernel"]
    assert row["own_share"] == 0.0
    table = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "-v").out
    assert "forward none; backward none" in table
    assert "no-own-kernel: no kernel of the solution's own ran" in table


SWALLOWED = PLAIN.replace(
    "import torch.nn as nn",
    """import torch.nn as nn
from torch.utils.cpp_extension import load_inline

try:
    load_inline("broken", "", '__global__ void broken() { no_such_thing(); }', no_implicit_headers=True)
except Exception:
    pass
""",
)


def test_a_swallowed_build_failure_is_told_in_the_table_and_may_be_refused(
    tmp_path: Path, harness: Callable[..., Any]
) -> None:
    solution, problem = write(tmp_path, SWALLOWED)
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "-v")
    assert ran.code == 0
    assert "PASSED, no kernel of its own" in ran.out
    assert "1 passed, 0 failed, 1 without a kernel of its own (1 solution, 1 case)" in ran.out
    assert "its build failed: line 6: error: " in " ".join(ran.out.split())
    assert "own kernels: 0 % of emulated work" in ran.out
    refused = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--require-own-kernel", "--json")
    (row,) = refused.rows
    assert (refused.code, row["status"], row["rule"]) == (1, "CHEATED", "no-own-kernel")
    assert row["policy"]["rules"] == {"no-own-kernel": "enforce"}
    shown = harness("show", row["record"]).out
    assert "own kernels: 0 % of emulated work" in shown


def test_what_fails_is_not_traced(tmp_path: Path, harness: Callable[..., Any]) -> None:
    solution, problem = write(tmp_path, PLAIN.replace("+ 1", "+ 2"))
    (row,) = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--json").rows
    assert (row["status"], row["kernels"], row["findings"]) == ("WRONG_OUTPUT", {}, [])


@pytest.mark.gpu
def test_the_profiler_tells_own_kernels_from_torchs(tmp_path: Path, harness: Callable[..., Any]) -> None:
    stem = "gemm_bias_add_hardtanh_mish_group_norm"
    (row,) = harness("evaluate", f"{stem}/aten", "--case", "odd", "--device", "cuda:0", "--json").rows
    assert row["status"] == "PASSED", row["message"]
    own = {direction: [use for use in found if use[2]] for direction, found in uses(row).items()}
    assert own == {
        "forward": [("normalise_short_groups", 1, True)],
        "backward": [("differentiate_short_groups", 1, True), ("add_chunks", 1, True)],
    }
    assert all(any(not use["own"] for use in found) for found in row["kernels"].values())  # torch's products
    assert all(use["device_ms"] > 0 for found in row["kernels"].values() for use in found)
    kinds = {finding["kind"] for finding in row["findings"]}  # what of it is the kernels' share depends on the GPU
    assert kinds - {"no-own-kernel"} == {"heavy-operator", "library-operators"}
    solution, problem = write(tmp_path, PLAIN)
    (row,) = harness("evaluate", solution, "--problem", problem, "--device", "cuda:0", "--json").rows
    assert row["kernels"]["forward"]
    assert [finding["kind"] for finding in row["findings"]] == ["no-own-kernel"]

"""Tests ``check`` on host code that reads the device's memory, and on host code that may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return x * self.scale.detach() / x.sum()


def get_inputs():
    return [1 + torch.rand(90)]


def get_init_inputs():
    return []
"""

SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

#include <cstring>

__global__ void add_all(const float* x, float* sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, x[i]);
}

__global__ void times(const float* x, const float* by, float more, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * *by * more;
}

torch::Tensor scaled(torch::Tensor x, torch::Tensor scale) {
  const int n = x.numel();
  auto sum = torch::zeros({1}, x.options());
  add_all<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), sum.data_ptr<float>(), n);
  float more = 1.0f;
  torch::Tensor by;
  HOST
  auto y = torch::empty_like(x);
  times<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), by.data_ptr<float>(), more, y.data_ptr<float>(), n);
  return y;
}
"""
DECLARATION = "torch::Tensor scaled(torch::Tensor x, torch::Tensor scale);"
module = load_inline("host_code", DECLARATION, SOURCE, functions=["scaled"])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return module.scaled(x, SCALE)
'''

BUGS = {
    "parameter": "by = torch::ones({1}, x.options()) / sum; more = *scale.data_ptr<float>();  // BUG",
    "result": "by = scale.detach(); more = 1.0f / sum.data_ptr<float>()[0];  // BUG",
    "accessor": "by = scale.detach() / sum; more += 0.0f * x.accessor<float, 1>()[n - 1];  // BUG",
    "memcpy": "by = scale.detach(); std::memcpy(&more, sum.data_ptr<float>(), 4); more = 1.0f / more;  // BUG",
}
RIGHT = {
    "item": "by = scale.detach(); more = 1.0f / sum.item<float>();",
    "copy": "by = scale.detach(); const auto own = sum.cpu(); more = 1.0f / own.data_ptr<float>()[0];",
    "copy_of_parameter": "by = 1.0f / sum; more = *scale.detach().to(torch::kCPU).data_ptr<float>();",
    "cuda_memcpy": """by = scale.detach();
  cudaMemcpy(&more, sum.data_ptr<float>(), 4, cudaMemcpyDeviceToHost);
  more = 1.0f / more;""",
    "to_another": """const auto table = torch::full({1}, 2.0f, torch::kFloat32);
  const auto there = table.to(x);
  by = torch::zeros({1}, x.options());
  add_all<<<1, 1>>>(there.data_ptr<float>(), by.data_ptr<float>(), 1);
  by = scale.detach() / sum;
  more = 0.5f * table.data_ptr<float>()[0];""",
    "filled_by_the_host": """auto table = torch::empty({2}, torch::kFloat32);
  table.accessor<float, 1>()[0] = sum.item<float>();
  by = scale.detach() / table.to(x.device()).slice(0, 0, 1);
  table = table.to(x.device());
  more = 1.0f + 0.0f * table.cpu().data_ptr<float>()[0];""",
}

# What forward has copied to the host, backward may read there.
DIFFERENTIABLE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.rand(90)]


def get_init_inputs():
    return []
"""
KEPT = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>

__global__ void times(const float* x, const float* by, float more, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * (by == nullptr ? more : *by);
}

torch::Tensor forward(torch::Tensor x, torch::Tensor scale) {
  auto y = torch::empty_like(x);
  times<<<2, 64>>>(x.data_ptr<float>(), scale.data_ptr<float>(), 0.0f, y.data_ptr<float>(), x.numel());
  return y;
}

torch::Tensor backward(torch::Tensor g, torch::Tensor own) {
  auto y = torch::empty_like(g);
  times<<<2, 64>>>(g.data_ptr<float>(), nullptr, *own.data_ptr<float>(), y.data_ptr<float>(), g.numel());
  return y;
}
"""
DECLARED = """
torch::Tensor forward(torch::Tensor x, torch::Tensor scale);
torch::Tensor backward(torch::Tensor g, torch::Tensor own);
"""
module = load_inline("kept", DECLARED, SOURCE, functions=["forward", "backward"])


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.own = scale.detach().cpu()
        return module.forward(x, scale)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return module.backward(g.contiguous(), ctx.own), (g * x).sum().reshape(1)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return Scaled.apply(x.contiguous(), self.scale)
'''
RIGHT_IN_PYTHON = BUGS["parameter"].removesuffix("  // BUG")


@pytest.fixture(scope="module")
def rows(
    made_once: Callable[..., Any], harness: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    def judged() -> dict[str, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("host_code")
        problem = folder / "problem.py"
        problem.write_text(PROBLEM)
        for name, code in {**BUGS, **RIGHT}.items():
            (folder / f"{name}.py").write_text(SOLUTION.replace("HOST", code).replace("SCALE", "self.scale"))
        kept = SOLUTION.replace("HOST", RIGHT_IN_PYTHON).replace("SCALE", "self.scale.detach().cpu()")
        (folder / "copy_in_python.py").write_text(kept)
        solutions = sorted(path for path in folder.glob("*.py") if path != problem)
        ran = harness("check", *solutions, "--problem", problem, "--forward-only", "--json")
        return {Path(row["solution_path"]).stem: row for row in ran.rows}

    return made_once("host_code", judged)


@pytest.mark.parametrize("name", BUGS)
def test_host_code_that_reads_the_device_s_memory_is_named(name: str, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[name]
    assert row["status"] == "UNSAFE", row["message"]
    (finding,) = (one for one in row["findings"] if one["kind"] == "out-of-bounds")
    text = SOLUTION.replace("HOST", BUGS[name]).splitlines()
    assert finding["line"] == 1 + next(number for number, line in enumerate(text) if line.endswith("// BUG"))
    assert "host code reads 4 bytes of a" in finding["message"]
    assert "which is in the device's memory" in finding["message"]


@pytest.mark.parametrize("name", [*RIGHT, "copy_in_python"])
def test_host_code_may_read_copies_and_its_own_memory(name: str, rows: dict[str, dict[str, Any]]) -> None:
    assert rows[name]["status"] == "PASSED", rows[name]["message"]


def test_backward_may_read_what_forward_has_copied(harness: Callable[..., Any], tmp_path: Path) -> None:
    problem, solution = tmp_path / "problem.py", tmp_path / "kept.py"
    problem.write_text(DIFFERENTIABLE)
    solution.write_text(KEPT)
    (row,) = harness("check", solution, "--problem", problem, "--json").rows
    assert row["status"] == "PASSED", row["message"]

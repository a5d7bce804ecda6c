"""Tests that trials fill new memory, and what lies around it, so that each wrong access shows in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1), x.amin(1), x + 1


def get_inputs():
    return [torch.randn(6, 37)]


def get_init_inputs():
    return []
"""
SOLUTION = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

__device__ unsigned order_of(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__global__ void extremes(const float* x, int* most, unsigned* least, int columns) {
  __shared__ float part[4];
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    const float value = x[blockIdx.x * columns + i];
    largest = fmaxf(largest, value);
    atomicMin(&least[blockIdx.x], order_of(value));
  }
  atomicMax(&most[blockIdx.x], static_cast<int>(order_of(largest) ^ 0x80000000u));
}

__global__ void add_one(float* y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] += 1;
}

void run(torch::Tensor x, torch::Tensor most, torch::Tensor least, torch::Tensor y) {
  extremes<<<x.size(0), 32>>>(x.data_ptr<float>(), most.data_ptr<int>(),
                              reinterpret_cast<unsigned*>(least.data_ptr<int>()), x.size(1));
  add_one<<<(y.numel() + 31) / 32, 32>>>(y.data_ptr<float>(), y.numel());
}
"""
extension = load_inline(
    "fills", "void run(torch::Tensor x, torch::Tensor most, torch::Tensor least, torch::Tensor y);", SOURCE,
    functions=["run"],
)


def value_of(order):
    bits = torch.where(order < 0, order ^ -0x80000000, ~order)
    return bits.view(torch.float32)


class Extremes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        most = torch.full((x.shape[0],), -0x80000000, dtype=torch.int32, device=x.device)
        least = torch.full((x.shape[0],), -1, dtype=torch.int32, device=x.device)
        y = x.clone()
        extension.run(x, most, least, y)
        return value_of(most ^ -0x80000000), value_of(least), y

    @staticmethod
    def backward(ctx, dmost, dleast, dy):
        (x,) = ctx.saved_tensors
        return (
            dy
            + dmost[:, None] * (x == x.amax(1, keepdim=True))
            + dleast[:, None] * (x == x.amin(1, keepdim=True))
        )


class ModelNew(nn.Module):
    def forward(self, x):
        return Extremes.apply(x)
'''
FAULTS = {
    "honest": ("", "", Status.PASSED),
    "sums beyond the end": ("if (i < count) y", "y", Status.UNSAFE),
    "sums beyond the end of shared memory": (
        "  float largest = -INFINITY;",
        "  float largest = -INFINITY;\n  part[threadIdx.x % 4] = 0;\n  part[threadIdx.x % 8] += 1;",
        Status.UNSAFE,
    ),
    "a maximum of new memory": (
        "torch.full((x.shape[0],), -0x80000000,",
        "torch.empty(x.shape[0],",
        Status.WRONG_OUTPUT,
    ),
    "a minimum of new memory": ("torch.full((x.shape[0],), -1,", "torch.empty(x.shape[0],", Status.WRONG_OUTPUT),
    "a maximum of new shared memory": (
        "  for (int i = threadIdx.x",
        "  largest = part[threadIdx.x % 4];\n  for (int i = threadIdx.x",
        Status.WRONG_OUTPUT,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_one_fill_hides_shows_under_another(fault: str, tmp_path: Path, home: Path) -> None:
    old, new, status = FAULTS[fault]
    assert old in SOLUTION
    record = judged(PROBLEM, SOLUTION.replace(old, new, 1), tmp_path, home)
    assert record.status is status, record.message


POSITIVE_PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(37))

    def forward(self, x, bins):
        with torch.no_grad():
            return (x * self.weight).relu().sum()[None], torch.bincount(bins, minlength=8)


def get_inputs():
    return [torch.randn(37), torch.randint(0, 8, (37,))]


def get_init_inputs():
    return []
"""
POSITIVE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>

__global__ void sums(const float* x, const float* weight, const int64_t* bins, float* sum, int64_t* counts, int n) {
  const int first = threadIdx.x * 4;
  float positive = 0;
  for (int i = first; i < first + 4 && i < n; ++i) {
    const float value = x[i] * weight[i];
    positive += value > 0 ? value : 0;
  }
  atomicAdd(sum, positive);
  for (int i = first; i < first + 4 && i < n; ++i) {
    const int64_t bin = bins[i];
    if (bin >= 0 && bin < 8) atomicAdd(reinterpret_cast<unsigned long long*>(counts + bin), 1ull);
  }
}

void run(torch::Tensor x, torch::Tensor weight, torch::Tensor bins, torch::Tensor sum, torch::Tensor counts) {
  sums<<<1, 10>>>(x.data_ptr<float>(), weight.data_ptr<float>(), bins.data_ptr<int64_t>(), sum.data_ptr<float>(),
                  counts.data_ptr<int64_t>(), x.numel());
}
"""
extension = load_inline(
    "positive",
    "void run(torch::Tensor x, torch::Tensor weight, torch::Tensor bins, torch::Tensor sum, torch::Tensor counts);",
    SOURCE, functions=["run"],
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(37))

    def forward(self, x, bins):
        total, counts = x.new_zeros(1), bins.new_zeros(8)
        extension.run(x, self.weight.detach(), bins, total, counts)
        return total, counts
'''
ENDS = {
    "honest": ("", ""),
    "reads beyond an input and a parameter": (" && i < n; ++i) {\n    const float", "; ++i) {\n    const float"),
    "reads beyond indices": (" && i < n; ++i) {\n    const int64_t", "; ++i) {\n    const int64_t"),
}


@pytest.mark.parametrize("fault", ENDS)
def test_reading_beyond_what_the_judge_gives_is_a_wrong_result_and_no_race(
    fault: str, tmp_path: Path, home: Path
) -> None:
    old, new = ENDS[fault]
    assert old in POSITIVE
    record = judged(POSITIVE_PROBLEM, POSITIVE.replace(old, new, 1), tmp_path, home)
    assert record.status is (Status.WRONG_OUTPUT if new else Status.PASSED), record.message

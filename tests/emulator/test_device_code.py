"""Tests further device features: symbols, printf, assertions, sleeping, fences and clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .native import ASSERT, ORDERS, SUCCESS, Emulator, floats, ints, line_of

SOURCE = Path(__file__).with_name("device_code.cu")


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


@pytest.fixture(params=ORDERS)
def emulator(request: pytest.FixtureRequest, built: Emulator) -> Iterator[Emulator]:
    """The emulator in each order of threads and blocks."""
    built.begin()
    built.runtime.cuemu_set_order(ORDERS[request.param], 7)
    yield built
    built.reset()


def test_symbols_are_copied_to_and_from(emulator: Emulator) -> None:
    values, out = floats(7, range(10, 17)), floats(70)
    assert emulator.kernels.run_weigh(values, out, 70) == 96
    assert list(out) == [values[i % 6] + [[1, 2, 3], [4, 5, 6]][i % 2][i % 3] + 1000 for i in range(70)]
    assert emulator.reports() == []


def test_kernels_print(emulator: Emulator, capfd: pytest.CaptureFixture[str]) -> None:
    emulator.kernels.run_speak(2)
    printed = capfd.readouterr().out
    assert set(printed.splitlines()) == {"block 2, thread 3: 0.75 quarters", "block 2, thread 35: 8.75 quarters"}
    assert emulator.reports() == []


def test_an_assertion_that_fails_ends_the_launch(emulator: Emulator, capfd: pytest.CaptureFixture[str]) -> None:
    values = ints(64, [1] * 50 + [0] + [1] * 13)
    assert emulator.kernels.run_asserting(values, 50) == SUCCESS
    assert emulator.reports() == []
    assert emulator.kernels.run_asserting(values, 64) == ASSERT
    report = emulator.only_report("assert", "asserting")
    assert "thread (50,0,0)" in report["message"]
    assert report["line"] == line_of(SOURCE, "assert(i", "void asserting")
    assert "device_code.cu" in capfd.readouterr().err


def test_a_thread_that_sleeps_lets_others_run(emulator: Emulator) -> None:
    out = ints(3)
    emulator.kernels.run_waits(out)
    assert list(out) == [9, 1, 1]


SOLUTION = '''\
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <mma.h>

namespace cg = cooperative_groups;
using namespace nvcuda;

__constant__ float bias[16];

// out := softmax over all elements of (a b + bias), by blocks of one warp and one tile each.
__global__ void product_softmax(const __nv_bfloat16* a, const __nv_bfloat16* b, float* out, float* sums, int n) {
  __shared__ __align__(32) float tile[256];
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto grid = cg::this_grid();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    wmma::load_matrix_sync(left, a + k, n);
    wmma::load_matrix_sync(right, b + blockIdx.x * 16 * n + k, n);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::store_matrix_sync(tile, sum, 16, wmma::mem_row_major);
  warp.sync();
  float own = 0;
  for (int i = warp.thread_rank(); i < 256; i += warp.size()) {
    tile[i] = expf(tile[i] + bias[i % 16]);
    own += tile[i];
  }
  own = cg::reduce(warp, own, cg::plus<float>());
  if (warp.thread_rank() == 0) sums[blockIdx.x] = own;
  grid.sync();
  float all = 0;
  for (int i = 0; i < gridDim.x; ++i) all += sums[i];
  for (int i = warp.thread_rank(); i < 256; i += warp.size()) {
    out[(i / 16 * gridDim.x + blockIdx.x) * 16 + i % 16] = tile[i] / all;
  }
}

torch::Tensor forward(torch::Tensor a, torch::Tensor b, torch::Tensor given) {
  const int n = a.size(1), blocks = b.size(0) / 16;
  auto out = torch::empty({16, b.size(0)}, a.options().dtype(torch::kFloat32));
  auto sums = torch::empty({blocks}, out.options());
  cudaMemcpyToSymbol(bias, given.data_ptr<float>(), 16 * sizeof(float), 0, cudaMemcpyDeviceToDevice);
  auto* left = reinterpret_cast<const __nv_bfloat16*>(a.data_ptr());
  auto* right = reinterpret_cast<const __nv_bfloat16*>(b.data_ptr());
  float *to = out.data_ptr<float>(), *between = sums.data_ptr<float>();
  int width = n;
  void* arguments[] = {&left, &right, &to, &between, &width};
  const auto error = cudaLaunchCooperativeKernel((void*)product_softmax, dim3(blocks), dim3(32), arguments, 0,
                                                 at::cuda::getCurrentCUDAStream());
  TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
  return out;
}
"""

module = load_inline(name="product_softmax", cuda_sources=CUDA, functions=["forward"],
                     cpp_sources="torch::Tensor forward(torch::Tensor a, torch::Tensor b, torch::Tensor bias);")
generator = torch.Generator(device="cuda").manual_seed(0)
a, b = (torch.randn(rows, 64, device="cuda", generator=generator).bfloat16() for rows in (16, 80))
bias = torch.randn(16, device="cuda", generator=generator)
expected = torch.softmax((a.double() @ b.double().T + bias.repeat(5)).flatten(), 0).view(16, 80)
result = float((module.forward(a, b, bias) - expected).abs().max() / expected.max())
'''


def test_a_solution_with_all_of_it(run_solution: Callable[..., dict[str, Any]]) -> None:
    answer = run_solution(SOLUTION)
    assert answer.get("result", 1.0) < 1e-5, answer
    assert answer["reports"] == []


def test_braces_are_arguments_of_a_launch(emulator: Emulator) -> None:
    out = floats(15)
    emulator.kernels.run_braces(out, 3, 5)
    assert list(out) == [5, 5, *(2 * i + 3 for i in range(2, 15))]
    assert emulator.reports() == []

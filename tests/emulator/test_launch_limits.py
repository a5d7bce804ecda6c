"""Tests what CUDA says of a kernel before it runs: limits of an instance and a library, its bounds, its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RunSolution = Callable[..., dict[str, Any]]

SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

def build(name, code):
    return load_inline(name=name, cpp_sources="int run(torch::Tensor x);", cuda_sources="""
#include <torch/extension.h>
#include <cuda_runtime.h>
""" + code, functions=["run"])

x = torch.arange(256, dtype=torch.float32, device="cuda")
'''
REVERSE = """
__global__ void reverse(float* x) {{
  extern __shared__ float tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}}
int run(torch::Tensor x) {{
  {setting}
  reverse<<<1, 256, 65536>>>(x.data_ptr<float>());
  return cudaGetLastError();
}}
"""
SETTING = "cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);"
BOUNDED = """
template <int kThreads, typename T>
__global__ void __launch_bounds__(kThreads) twice(T* x) { x[threadIdx.x] *= 2; }
int run(torch::Tensor x) {
  twice<128, float><<<1, 128>>>(x.data_ptr<float>());
  twice<128><<<1, 128>>>(x.data_ptr<float>());
  if (cudaGetLastError() != cudaSuccess) return -1;
  LAUNCH<<<1, 256>>>(x.data_ptr<float>());
  return cudaGetLastError();
}
"""
LARGE = """
struct Large { float values[COUNT]; };
__global__ void pick(float* x, Large large) { x[threadIdx.x] = large.values[threadIdx.x]; }
int run(torch::Tensor x) {
  static Large large;
  large.values[3] = 7;
  pick<<<1, 256>>>(x.data_ptr<float>(), large);
  return cudaGetLastError();
}
"""
COPIES = """
int run(torch::Tensor x) {
  float host[4] = {1, 2, 3, 4}, *device, *managed;
  cudaMalloc(&device, sizeof host);
  cudaMallocManaged(&managed, sizeof host);
  bool well = cudaMemcpy(device, host, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue;
  well &= cudaMemcpy(host, device, sizeof host, cudaMemcpyHostToDevice) == cudaErrorInvalidValue;
  well &= cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToHost) == cudaErrorInvalidValue;
  well &= cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice) == cudaSuccess;
  well &= cudaMemcpy(host, device, sizeof host, cudaMemcpyDefault) == cudaSuccess;
  well &= cudaMemcpy(managed, device, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess;
  well &= cudaMemcpy(device, managed, sizeof host, cudaMemcpyHostToDevice) == cudaSuccess;
  well &= cudaMemcpy(x.data_ptr<float>(), device, sizeof host, cudaMemcpyDeviceToDevice) == cudaSuccess;
  cudaFree(device);
  cudaFree(managed);
  cudaGetLastError();
  return well;
}
"""
REFERENCE = """
struct Settings { float factor; int n; };
__global__ void scale(float* x, Settings& settings) {
  if (threadIdx.x == 0) settings.n += 1;
  x[threadIdx.x] *= settings.factor;
}
int run(torch::Tensor x) {
  Settings* settings;
  cudaMallocManaged(&settings, sizeof(Settings));
  *settings = {2.0f, 3};
  scale<<<1, 256>>>(x.data_ptr<float>(), *settings);
  cudaDeviceSynchronize();
  return settings->n;
}
"""


def test_equal_names_in_two_libraries_share_no_limit(run_solution: RunSolution) -> None:
    first, second = REVERSE.format(setting=SETTING), REVERSE.format(setting="")
    builds = f"build('first', '''{first}''').run(x), build('second', '''{second}''').run(x)"
    answer = run_solution(f"{SOLUTION}result = [{builds}, x[0].item()]")
    assert answer["result"] == [0, 1, 255.0]
    (report,) = answer["reports"]
    assert report["kind"] == "launch"
    assert "invalid argument" in report["message"]


@pytest.mark.parametrize(("launch", "error", "first"), [("twice<128, float>", 1, 4.0), ("twice<128>", 1, 4.0)])
def test_a_block_beyond_the_kernels_bound(run_solution: RunSolution, launch: str, error: int, first: float) -> None:
    code = BOUNDED.replace("LAUNCH", launch)
    answer = run_solution(f"{SOLUTION}result = [build('bounded', '''{code}''').run(x), x[1].item()]")
    assert answer["result"] == [error, first]
    (report,) = answer["reports"]
    assert report["kind"] == "launch"
    assert "the kernel's __launch_bounds__ allow 128" in report["message"]


def test_a_block_within_the_kernels_bound(run_solution: RunSolution) -> None:
    code = BOUNDED.replace("LAUNCH", "twice<256>")
    answer = run_solution(f"{SOLUTION}result = [build('bounded', '''{code}''').run(x), x[1].item()]")
    assert answer["result"] == [0, 8.0]
    assert answer["reports"] == []


def test_parameters_beyond_the_limit_do_not_build(run_solution: RunSolution) -> None:
    answer = run_solution(f"{SOLUTION}build('large', '''{LARGE.replace('COUNT', '20000')}''')")
    assert "take more than 32764 bytes" in answer["failed"]


def test_parameters_within_the_limit(run_solution: RunSolution) -> None:
    code = LARGE.replace("COUNT", "3000")
    answer = run_solution(f"{SOLUTION}result = [build('large', '''{code}''').run(x), x[3].item()]")
    assert answer["result"] == [0, 7.0]


def test_parameters_that_would_not_fit_a_threads_stack_are_refused(run_solution: RunSolution) -> None:
    answer = run_solution(f"{SOLUTION}build('large', '''{LARGE.replace('COUNT', '8000')}''')")
    assert "more than 12 KB of parameters" in answer["unsupported"][0]


def test_a_copy_has_the_direction_of_its_pointers(run_solution: RunSolution) -> None:
    assert run_solution(f"{SOLUTION}result = build('copies', '''{COPIES}''').run(x)")["result"] == 1


def test_a_parameter_by_reference_is_the_argument_itself(run_solution: RunSolution) -> None:
    answer = run_solution(f"{SOLUTION}result = [build('by', '''{REFERENCE}''').run(x), x[3].item()]")
    assert answer["result"] == [4, 6.0]

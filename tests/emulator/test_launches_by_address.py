"""Tests launches of kernels whose address alone is known, as in C++ sources beside the CUDA source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

RunSolution = Callable[..., dict[str, Any]]

CUDA = """
#include <cuda_runtime.h>
struct Parameters { float* x; int n; };
template <typename T, int kFactor>
static __global__ void times(Parameters p, T amount) {
  extern __shared__ float tile[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < p.n ? p.x[i] : 0;
  __syncthreads();
  if (i < p.n) p.x[i] = tile[threadIdx.x] * kFactor + float(amount);
}
#define PLAIN(name, value) \\
  __global__ void __launch_bounds__(64) set_to_##name(Parameters p) { \\
    if (threadIdx.x < p.n) p.x[threadIdx.x] = value; \\
  } \\
  void launch_##name(float* x, int n) { set_to_##name<<<1, 64>>>(Parameters{x, n}); }
PLAIN(nine, 9.0f)
template <class T> const void* kernel_of(int factor) {
  if (factor == 2) return (const void*)times<T, 2>;
  if (factor == 3) return reinterpret_cast<const void*>(&times<T, 3>);
  return nullptr;
}
template const void* kernel_of<float>(int);
template const void* kernel_of<double>(int);
"""
CPP = """
#include <torch/extension.h>
#include <cuda_runtime.h>
struct Parameters { float* x; int n; };
template <class T> const void* kernel_of(int factor);
__global__ void set_to_nine(Parameters p);
void launch_nine(float* x, int n);

template <typename T>
int scale(torch::Tensor x, int factor, int block, int bytes, int allowed) {
  Parameters p = {x.data_ptr<float>(), (int)x.numel()};
  T amount = 0.5;
  void* arguments[] = {&p, &amount};
  const void* kernel = kernel_of<T>(factor);
  if (allowed) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, allowed);
  cudaLaunchKernel(kernel, (p.n - 1) / block + 1, block, arguments, bytes, nullptr);
  return cudaGetLastError();
}
int scale_floats(torch::Tensor x, int factor, int bytes, int allowed) {
  return scale<float>(x, factor, 96, bytes, allowed);
}
int scale_doubles(torch::Tensor x, int factor, int bytes, int allowed) {
  return scale<double>(x, factor, 96, bytes, allowed);
}
int nines(torch::Tensor x, int block, bool in_c) {
  Parameters p = {x.data_ptr<float>(), (int)x.numel()};
  void* arguments[] = {&p};
  if (!in_c) return cudaLaunchKernel(set_to_nine, 1, block, arguments, 0, nullptr);
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = block;
  return cudaLaunchKernelExC(&config, (const void*)set_to_nine, arguments);
}
int nines_by_name(torch::Tensor x) {
  launch_nine(x.data_ptr<float>(), x.numel());
  return cudaGetLastError();
}
int bound() {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, (const void*)set_to_nine);
  return attributes.maxThreadsPerBlock;
}
int no_kernel(torch::Tensor x) {
  void* arguments[] = {nullptr};
  cudaLaunchKernel((const void*)&bound, 1, 32, arguments, 0, nullptr);
  return cudaGetLastError();
}
"""
SOLUTION = f"""
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''{CUDA}'''
CPP = r'''{CPP}'''
FUNCTIONS = ["scale_floats", "scale_doubles", "nines", "nines_by_name", "bound", "no_kernel"]
built = load_inline(name="by_address", cpp_sources=CPP, cuda_sources=CUDA, functions=FUNCTIONS)
x = torch.arange(200, dtype=torch.float32, device="cuda")
"""


def line_of(part: str) -> int:
    return next(number for number, line in enumerate(SOLUTION.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    ("call", "second"),
    [
        ("scale_floats(x, 2, 384, 0)", 2.5),
        ("scale_floats(x, 3, 384, 0)", 3.5),
        ("scale_doubles(x, 3, 384, 0)", 3.5),
        ("scale_floats(x, 2, 65536, 65536)", 2.5),
        ("nines(x, 64, False)", 9.0),
        ("nines(x, 64, True)", 9.0),
        ("nines_by_name(x)", 9.0),
    ],
)
def test_a_cpp_source_launches_a_kernel_by_its_address(run_solution: RunSolution, call: str, second: float) -> None:
    answer = run_solution(f"{SOLUTION}result = [built.{call}, x[1].item()]")
    assert answer.get("result") == [0, second], answer
    assert answer["reports"] == []


@pytest.mark.parametrize(
    ("call", "error", "kernel", "at", "message"),
    [
        ("nines(x, 128, False)", 1, "set_to_nine", "if (!in_c)", "__launch_bounds__ allow 64"),
        ("nines(x, 128, True)", 1, "set_to_nine", "cudaLaunchKernelExC", "__launch_bounds__ allow 64"),
        ("scale_floats(x, 2, 65536, 0)", 1, "times", "arguments, bytes, nullptr", "the limit is 49152"),
        ("scale_floats(x, 4, 384, 0)", 98, "(unknown)", "arguments, bytes, nullptr", "invalid device function"),
        ("no_kernel(x)", 98, "(unknown)", "(const void*)&bound", "invalid device function"),
    ],
)
def test_a_wrong_launch_by_address(
    run_solution: RunSolution, call: str, error: int, kernel: str, at: str, message: str
) -> None:
    answer = run_solution(f"{SOLUTION}result = [built.{call}, x[1].item()]")
    assert answer.get("result") == [error, 1.0], answer
    (report,) = answer["reports"]
    assert (report["kind"], report["kernel"], report["line"]) == ("launch", kernel, line_of(at))
    assert message in report["message"]
    assert report["remedy"]


def test_a_kernel_tells_its_bound_by_its_address(run_solution: RunSolution) -> None:
    assert run_solution(f"{SOLUTION}result = built.bound()").get("result") == 64


def test_a_limit_of_one_instance_is_none_of_another(run_solution: RunSolution) -> None:
    calls = "built.scale_floats(x, 2, 65536, 65536), built.scale_doubles(x, 2, 65536, 0)"
    assert run_solution(f"{SOLUTION}result = [{calls}]").get("result") == [0, 1]

"""Tests candidates that use what only a CUDA build of torch has: it works as on a GPU, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
"""
CANDIDATE = '''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
{head}

__global__ void twice(const float* x, float* y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
  if (i < n) y[i] = 2 * x[i];
}}

torch::Tensor run(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  int n = x.numel();
  {launch}
  return y;
}}
"""
built = load_inline("twice_{name}", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return built.run(x)
'''
_KINDS = ("Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double", "Bool")
LAUNCH = "twice<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(from, to, n);"


@pytest.fixture
def judged(tmp_path: Path, evaluate_row: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Judges the candidate with these pieces, forward only."""
    problem = tmp_path / "twice.py"
    problem.write_text(PROBLEM)

    def judge(name: str, head: str = "", body: str = "", launch: str = LAUNCH) -> dict[str, Any]:
        path = tmp_path / f"{name}.py"
        path.write_text(CANDIDATE.format(name=name, head=head, body=body, launch=launch))
        return evaluate_row(path, problem, "--forward-only")

    return judge


def test_a_tensor_is_recorded_on_a_stream(judged: Callable[..., dict[str, Any]]) -> None:
    row = judged("recorded", launch=f"{LAUNCH} x.record_stream(at::cuda::getCurrentCUDAStream());")
    assert row["status"] == "PASSED", row["message"]


def test_a_kernel_waits_for_the_one_before_it(judged: Callable[..., dict[str, Any]]) -> None:
    calls = "cudaGridDependencySynchronize(); cudaTriggerProgrammaticLaunchCompletion();"
    row = judged("dependent", body=calls)
    assert row["status"] == "PASSED", row["message"]


def test_a_source_sees_nvcc_and_torchs_numbers_are_cudas(judged: Callable[..., dict[str, Any]]) -> None:
    head = """
#include <thrust/complex.h>
#if !defined(__NVCC__) || !defined(__CUDACC__) || __CUDACC_VER_MAJOR__ < 12
#error "This source is for nvcc."
#endif
__device__ float product(float x, float y) {
  return (thrust::complex<float>(0, x) * thrust::complex<float>(0, -y)).real();
}
"""
    body = """
  if (i < n) {
    const c10::Half two = __float2half(2.f);
    const __half2 pair = __half2half2(two);
    const c10::BFloat16 one = __float2bfloat16(1.f);
    y[i] = product(__half22float2(pair).x, x[i]) * __bfloat162float(static_cast<__nv_bfloat16>(one));
  }
  return;
"""
    row = judged("nvcc", head, body)
    assert row["status"] == "PASSED", row["message"]


def test_torchs_types_are_added_atomically(judged: Callable[..., dict[str, Any]]) -> None:
    head = """
#include <ATen/cuda/Atomic.cuh>
template <typename T> __global__ void count(T* total) {
  atomicAdd(total, static_cast<T>(1));
  gpuAtomicAdd(total, static_cast<T>(1));
}
void check(torch::Tensor x) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, x.scalar_type(), "count", [&] {
    count<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>());
  });
  TORCH_CHECK(x.item<float>() == (x.scalar_type() == at::kBool ? 1 : 64), x.scalar_type(), " has ", x);
}
"""
    kinds = ", ".join(f"at::k{kind}" for kind in _KINDS)
    each = f"for (auto kind : {{{kinds}}}) check(torch::zeros({{1}}, x.options().dtype(kind))); "
    row = judged("counted", head, launch=each + LAUNCH)
    assert row["status"] == "PASSED", row["message"]


def test_16_bit_floats_lack_what_torchs_builds_switch_off(judged: Callable[..., dict[str, Any]]) -> None:
    row = judged("operators", "#include <cuda_fp16.h>", "y[i] = __half2float(__float2half(x[i]) * __float2half(2.f));")
    assert row["status"] == "BUILD_ERROR", row["message"]
    assert "no match for 'operator*'" in row["message"]
    assert "-U__CUDA_NO_HALF_OPERATORS__" in row["message"]


@pytest.mark.parametrize(
    ("name", "head", "launch", "construct"),
    [
        (
            "philox",
            "#include <ATen/cuda/CUDAGeneratorImpl.h>",
            "at::check_generator<at::CUDAGeneratorImpl>(at::cuda::detail::getDefaultCUDAGenerator())->philox_cuda_state(4);",
            "CUDAGeneratorImpl",
        ),
        (
            "softmax",
            "#include <ATen/native/cuda/PersistentSoftmax.cuh>",
            LAUNCH,
            "PersistentSoftmax.cuh> (it has launches)",
        ),
    ],
)
def test_the_rest_is_refused_by_name(
    judged: Callable[..., dict[str, Any]], name: str, head: str, launch: str, construct: str
) -> None:
    row = judged(name, head, launch=launch)
    assert row["status"] == "UNSUPPORTED", row["message"]
    assert construct in row["message"]
    assert "is not supported on the CPU emulator" in row["message"]

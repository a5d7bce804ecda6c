"""Tests the products of cuBLAS, and that the rest of it and of cuDNN is refused only where it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SOLUTION = '''
import itertools
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cublas_v2.h>
#include <cudnn.h>

using Tensor = torch::Tensor;

template <typename Number, typename Multiply>
void run(Multiply multiply, Tensor a, Tensor b, Tensor c, std::vector<int64_t> sizes, double beta) {
  const Number two = 2, kept = beta;
  const auto operation = [](int64_t is_transposed) { return is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const auto status = multiply(
      at::cuda::getCurrentCUDABlasHandle(), operation(sizes[3]), operation(sizes[4]), sizes[0], sizes[1], sizes[2],
      &two, a.data_ptr<Number>(), int(a.size(2)), a.stride(0), b.data_ptr<Number>(), int(b.size(2)), b.stride(0),
      &kept, c.data_ptr<Number>(), int(c.size(2)), c.stride(0), int(c.size(0)));
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS);
}
void batched(Tensor a, Tensor b, Tensor c, std::vector<int64_t> sizes, double beta) {
  if (a.scalar_type() == torch::kDouble) run<double>(cublasDgemmStridedBatched, a, b, c, sizes, beta);
  else run<float>(cublasSgemmStridedBatched, a, b, c, sizes, beta);
}
std::vector<int64_t> statuses() {
  cublasHandle_t handle;
  float one = 1, values[4] = {1, 2, 3, 4}, result[4];
  std::vector<int64_t> all{cublasCreate(&handle), cublasSetStream(handle, at::cuda::getCurrentCUDAStream())};
  all.push_back(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, values, 2, values, 2, &one, result, 1));
  all.push_back(cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, values, 2, values, 2, &one, result, 2));
  all.push_back(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 2, 2, &one, values, 2, values, 2, &one, result, 2));
  all.push_back(cublasDestroy(handle));
  return all;
}
"""
DECLARATIONS = """
void batched(torch::Tensor a, torch::Tensor b, torch::Tensor c, std::vector<int64_t> sizes, double beta);
std::vector<int64_t> statuses();
"""
built = load_inline("products", DECLARATIONS, SOURCE, functions=["batched", "statuses"])

def column_major(count, rows, columns, dtype):
    """Memory with a longer leading dimension, and the matrices in it."""
    memory = torch.randn(count, columns, rows + 3, dtype=dtype)
    return memory, memory[..., :rows].mT

worst = 0.0
for dtype, ta, tb, beta in itertools.product((torch.float32, torch.float64), (False, True), (False, True), (0.0, 0.5)):
    m, n, k, count = 5, 7, 11, 3
    a, left = column_major(count, *((k, m) if ta else (m, k)), dtype)
    b, right = column_major(count, *((n, k) if tb else (k, n)), dtype)
    c, result = column_major(count, m, n, dtype)
    if beta == 0:
        result.fill_(float("nan"))
    around = c[..., m:].clone()
    expected = 2 * (left.mT if ta else left) @ (right.mT if tb else right) + (beta * result if beta else 0)
    built.batched(a, b, c, [m, n, k, ta, tb], beta)
    worst = max(worst, float((result - expected).abs().max()))
    assert torch.equal(c[..., m:], around)
result = [worst < 1e-5, built.statuses()]
'''


def test_products_are_torchs(run_solution: Callable[..., dict[str, Any]]) -> None:
    answer = run_solution(SOLUTION)
    assert answer.get("result") == [True, [0, 0, 7, 1, 0, 0]], answer


def test_a_header_alone_is_no_use(run_solution: Callable[..., dict[str, Any]]) -> None:
    head = "#include <torch/extension.h>\\n#include <cublas_v2.h>\\n#include <cublasLt.h>\\n#include <cudnn.h>\\n"
    text = f"""
from torch.utils.cpp_extension import load_inline
built = load_inline("alone", "int one();", "{head}int one() {{ return 1; }}", functions=["one"])
result = built.one()
"""
    assert run_solution(text).get("result") == 1
    for use, library in (
        ("auto f = cublasLtCreate;", "cuBLAS"),
        ("int x = CUDNN_DATA_FLOAT;", "cuDNN"),
        ("auto f = cublasSsymm;", "cuBLAS"),
    ):
        answer = run_solution(text.replace("int one() {", f"int one() {{ {use}"))
        assert answer["unsupported"][0] == library, answer

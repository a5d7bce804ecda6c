"""Tests the runtime as a worker uses it: the order of threads, and its reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SOLUTION = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void last(float* y) { y[0] = threadIdx.x; }
extern "C" void launch_last(float* y, int threads) {
  last<<<1, threads>>>(y);
}
"""
CPP = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
extern "C" void launch_last(float* y, int threads);
void last(torch::stable::Tensor y, int64_t threads) { launch_last(y.mutable_data_ptr<float>(), threads); }
STABLE_TORCH_LIBRARY(order_ops, m) { m.def("last(Tensor(a!) y, int threads) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL(order_ops, CUDA, m) { m.impl("last", TORCH_BOX(&last)); }
"""
load_inline("order_ops", CPP, CUDA, no_implicit_headers=True, is_python_module=False)
fresh = torch.empty(1, device="cuda")
result = {"poisoned": bool(fresh.isnan().item())}

def last_written(order, seed=0):
    session.set_thread_order(order, seed)
    y = torch.zeros(1, device="cuda")
    torch.ops.order_ops.last(y, 64)
    return y.item()

result["orders"] = [last_written("forward"), last_written("reverse"), last_written("random", 2**64 + 5)]
result["again"] = last_written("random", 5)
result["quiet"] = session.take_reports()
torch.ops.order_ops.last(torch.zeros(1, device="cuda"), 2048)
try:
    session.set_thread_order("sideways")
except ValueError as error:
    result["refused"] = str(error)
'''


def test_a_session_sets_the_order_and_hands_over_reports(run_solution: Callable[..., dict[str, Any]]) -> None:
    answer = run_solution(SOLUTION)
    result = answer["result"]
    assert result["poisoned"]
    assert result["orders"][:2] == [63.0, 0.0]
    assert result["again"] == result["orders"][2]
    assert result["quiet"] == []
    assert "must be one of forward, reverse, random" in result["refused"]
    (report,) = answer["reports"]
    assert (report["kind"], report["kernel"]) == ("launch", "last")
    assert report["line"] == next(i for i, line in enumerate(SOLUTION.splitlines(), 1) if "last<<<" in line)

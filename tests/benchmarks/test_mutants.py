"""Tests the mutants that show whether the judge notices one small change."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.mutants import KILLED, changes, outcomes_of

PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.clamp(min=0.5) * 2


def get_inputs():
    return [torch.randn(5, 33)]


def get_init_inputs():
    return []
"""
SOLUTION = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void doubled(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.5f) * 2.0f;
}
torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  doubled<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""
extension = load_inline("doubled", "torch::Tensor forward(torch::Tensor x);", SOURCE, functions=["forward"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.forward(x.contiguous())
'''


def test_each_change_is_one_place_of_the_cuda_source() -> None:
    found = changes(SOLUTION)
    counts = Counter(change.operator for change in found)
    assert counts == {
        "arithmetic": 5, "comparison": 1, "dimension": 3, "extremum": 1, "guard": 1, "index": 2, "number": 5
    }  # fmt: skip
    for change in found:
        before, after = change.lines(SOLUTION)
        assert before != after
        lines = zip(SOLUTION.splitlines(), change.applied(SOLUTION).splitlines(), strict=True)
        assert sum(one != other for one, other in lines) == 1


def test_a_wrong_mutant_is_killed_and_one_that_does_not_pass_is_told(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_HOME", str(home))
    (tmp_path / "problem.py").write_text(PROBLEM)
    chosen = [change for change in changes(SOLUTION) if change.operator in ("extremum", "guard")]
    arguments = ("small", str(tmp_path / "problem.py"), chosen, ["--forward-only"])
    assert outcomes_of(SOLUTION, *arguments) == [KILLED] * 2
    assert outcomes_of(SOLUTION.replace("0.5f", "0.6f"), *arguments) is None

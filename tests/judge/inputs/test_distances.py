"""Tests how far apart two runs of a reference are said to be, and in how much memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.judge.inputs import randomness
from harness.judge.inputs.randomness import distance, magnitude


class Largest(TorchDispatchMode):
    """Notes the most elements of a tensor that an operator makes, views aside."""

    def __init__(self, *tensors: torch.Tensor):
        super().__init__()
        self._known = {tensor.data_ptr() for tensor in tensors}
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in self._known:
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("place", [0, 999, 1000, 2499])
def test_every_piece_counts(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(randomness, "PIECE", 1000)
    one, other = torch.ones(50, 50), torch.ones(50, 50)
    other.view(-1)[place] = -2.0
    assert (distance([one], [other]), magnitude(other)) == (3.0, 2.0)


def test_no_copy_is_as_large_as_a_large_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "PIECE", 1000)
    one, other = torch.rand(100, 100, requires_grad=True), torch.rand(100, 100)
    with Largest(one, other) as seen:
        assert distance([one], [other]) > 0 < magnitude(one)
    assert seen.elements == 1000


def test_what_is_not_finite_or_not_there() -> None:
    nan, one = torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])
    assert distance([nan], [nan.clone()]) == 0.0
    assert distance([nan], [one]) == math.inf
    assert distance([one], [torch.ones(3)]) == math.inf
    assert (distance([torch.empty(0)], [torch.empty(0)]), magnitude(torch.empty(0))) == (0.0, 0.0)
    assert (magnitude(torch.tensor([True])), magnitude(torch.tensor([-7]))) == (1.0, 7.0)

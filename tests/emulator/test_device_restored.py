"""What ``emulated_cuda`` leaves behind: nothing."""

from __future__ import annotations

import pytest
import torch

from harness.emulator.device import emulated_cuda


def test_everything_is_as_it_was() -> None:
    before = [dict(vars(owner)) for owner in (torch, torch.cuda, torch.Tensor, torch.library.Library)]
    with emulated_cuda():
        assert torch.ones(1).is_cuda
    after = [dict(vars(owner)) for owner in (torch, torch.cuda, torch.Tensor, torch.library.Library)]
    for was, now in zip(before, after, strict=True):
        assert {name for name in was.keys() | now.keys() if was.get(name) is not now.get(name)} == set()
    assert torch.ones(1).device == torch.device("cpu")


def test_an_error_inside_restores_too() -> None:
    with pytest.raises(KeyError), emulated_cuda():
        raise KeyError("inside")
    assert not torch.ones(1).is_cuda

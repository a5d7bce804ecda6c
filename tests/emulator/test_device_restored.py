"""Tests that ``emulated_cuda`` restores everything that it changed."""

from __future__ import annotations

import pytest
import torch
from torch.jit import _builtins

from harness.emulator.device import emulated_cuda


def test_everything_is_as_it_was() -> None:
    owners = (torch, torch.cuda, torch.cuda.streams, torch.Tensor, torch.library.Library)
    before = [dict(vars(owner)) for owner in owners]
    scripted = dict(_builtins._get_builtin_table())  # type: ignore[no-untyped-call]
    with emulated_cuda():
        assert torch.ones(1).is_cuda
    after = [dict(vars(owner)) for owner in owners]
    assert _builtins._get_builtin_table() == scripted  # type: ignore[no-untyped-call]
    for was, now in zip(before, after, strict=True):
        assert {name for name in was.keys() | now.keys() if was.get(name) is not now.get(name)} == set()
    assert torch.ones(1).device == torch.device("cpu")


def test_an_error_inside_restores_too() -> None:
    with pytest.raises(KeyError), emulated_cuda():
        raise KeyError("inside")
    assert not torch.ones(1).is_cuda


def test_what_replaced_a_function_between_two_contexts_is_called_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context takes the last one's patches only if torch is as it was then."""
    with emulated_cuda():
        pass
    original = torch.zeros
    asked = []

    def own_zeros(*shape: int, **options: object) -> torch.Tensor:
        asked.append(shape)
        return original(*shape, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(torch, "zeros", own_zeros)
    with emulated_cuda():
        assert torch.zeros(3, device="cuda").is_cuda
    assert asked == [(3,)]
    assert torch.zeros is own_zeros
    monkeypatch.undo()
    with emulated_cuda():
        torch.zeros(4, device="cuda")
    assert (asked, torch.zeros) == ([(3,)], original)

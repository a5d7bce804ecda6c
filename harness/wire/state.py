"""What judge and worker say of a model's parameters, buffers and modes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from harness.wire.arena import dtype_name
from harness.wire.messages import StateTensor


def describe_state(model: torch.nn.Module) -> list[StateTensor]:
    """Parameters and persistent buffers of a model, as both sides describe them."""
    kept = set(model.state_dict(keep_vars=True))
    named: list[tuple[str, torch.Tensor, bool]] = [(name, tensor, True) for name, tensor in model.named_parameters()]
    named += [(name, tensor, False) for name, tensor in model.named_buffers() if name in kept]
    return [
        StateTensor(name, is_parameter, tuple(tensor.shape), dtype_name(tensor.dtype), fill_value(tensor))
        for name, tensor, is_parameter in named
    ]


def modes_of(model: torch.nn.Module) -> dict[str, bool]:
    """Whether a model is in training mode (name ``""``), and each submodule whose mode is not that of its parent."""
    modes = {name: module.training for name, module in model.named_modules()}
    return {
        name: mode for name, mode in modes.items() if not name or mode != modes.get(name.rpartition(".")[0], not mode)
    }


def set_modes(model: torch.nn.Module, modes: Mapping[str, bool]) -> None:
    """Put a model into the modes that ``modes_of`` gave of another, as far as its submodules have the same names."""
    for name, module in model.named_modules():  # a parent before what it holds
        if name in modes:
            module.train(modes[name])


def fill_value(tensor: torch.Tensor) -> float | None:
    """The one value that all elements of a tensor have, None when they differ or there are none."""
    if tensor.numel() == 0 or tensor.is_complex():
        return None
    first = tensor.detach().flatten()[0]
    return float(first) if bool((tensor.detach() == first).all()) else None

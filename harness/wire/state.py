"""Descriptions of a model's parameters, buffers and training modes for the other process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from harness.wire.arena import dtype_name
from harness.wire.tensors import StateTensor

#: Seed under which both sides construct a model. What a constructor draws outside parameters and
#: buffers never crosses, so that both must draw the same, as in KernelBench.
CONSTRUCTION_SEED = 42


def describe_state(model: torch.nn.Module) -> list[StateTensor]:
    """Describes a model's parameters and persistent buffers in the form that both sides use."""
    kept = set(model.state_dict(keep_vars=True))
    named: list[tuple[str, torch.Tensor, bool]] = [(name, tensor, True) for name, tensor in model.named_parameters()]
    named += [(name, tensor, False) for name, tensor in model.named_buffers() if name in kept]
    return [
        StateTensor(name, is_parameter, tuple(tensor.shape), dtype_name(tensor.dtype), fill_value(tensor))
        for name, tensor, is_parameter in named
    ]


def modes_of(model: torch.nn.Module) -> dict[str, bool]:
    """Returns the training modes of a model and its submodules.

    The model's own mode has the name ``""``. A submodule appears if its mode differs from its
    parent's.
    """
    modes = {name: module.training for name, module in model.named_modules()}
    return {
        name: mode for name, mode in modes.items() if not name or mode != modes.get(name.rpartition(".")[0], not mode)
    }


def set_modes(model: torch.nn.Module, modes: Mapping[str, bool]) -> None:
    """Sets the training modes that ``modes_of`` returned for another model.

    Modes of submodules that this model does not have are ignored.
    """
    for name, module in model.named_modules():  # parents come before their children
        if name in modes:
            module.train(modes[name])


@contextlib.contextmanager
def modes_kept(model: torch.nn.Module) -> Iterator[None]:
    """Gives all modules their modes, training or evaluation, back at the end of a block."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def switch_and_return(model: torch.nn.Module) -> None:
    """Brings a model into the other mode, training or evaluation, and back, as between epochs."""
    with modes_kept(model):
        mode = model.training
        model.train(not mode)
        model.train(mode)


def fill_value(tensor: torch.Tensor) -> float | None:
    """Returns the one value that all elements of a tensor have.

    None if they differ or there are none.
    """
    if tensor.numel() == 0 or tensor.is_complex():
        return None
    first = tensor.detach().flatten()[0]
    return float(first) if bool((tensor.detach() == first).all()) else None


def tensors_aside(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns the tensors that modules keep outside parameters and persistent buffers, by name."""
    kept = model.state_dict(keep_vars=True)
    found = {name: buffer for name, buffer in model.named_buffers() if name not in kept}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            items = value if isinstance(value, list | tuple) else (value,)
            for number, item in enumerate(items):
                if isinstance(item, torch.Tensor):
                    place = f"{path}.{name}".strip(".")
                    found[place if item is value else f"{place}[{number}]"] = item
    return found


def constructed_there(device: torch.device, construct: Callable[[], Any]) -> Any:
    """Constructs the problem's model on a device, which draws a large layer in a thousandth of the time.

    Returns:
        The model. None if it cannot be constructed there, or keeps tensors aside: the candidate's
        constructor has to compute the same, and does that on the CPU.
    """
    # Whatever fails here fails once more on the CPU, and is told there.
    with contextlib.suppress(Exception), device:
        model = construct()
        if not isinstance(model, torch.nn.Module) or not tensors_aside(model):
            return model
    return None

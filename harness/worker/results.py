"""Copies what a candidate returned to where the judge reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.wire.arena import Arena, dtype_name
from harness.wire.replies import Outputs, OutputTensor
from harness.wire.structure import taken_apart
from harness.wire.tensors import Region

_TENSORS = (torch.Tensor, torch.nn.Parameter)


def stored(
    result: Any,
    arena: Arena,
    regions: Sequence[Region],
    kept: Callable[[torch.Tensor], torch.Tensor],
    device: torch.device,
) -> Outputs:
    """Copies the outputs of a forward into their regions and describes them.

    Args:
        result: The result of the call.
        arena: The mapped arena.
        regions: A region for each output.
        kept: Returns the part of an output that the judge asked for.
        device: The device of the candidate.
    """
    structure, tensors = taken_apart(result)
    told: list[OutputTensor] = []
    for index, tensor in enumerate(map(kept, tensors)):
        output = _described(tensor, device)
        if not output.fault and index < len(regions):
            fault = store(arena, regions[index], tensor)
            output = OutputTensor(output.shape, output.dtype, output.differentiable, fault)
        told.append(output)
    return Outputs(structure, tuple(told), {}, (), {})


def store(arena: Arena, region: Region, tensor: torch.Tensor) -> str:
    """Copies a tensor into its region.

    Returns:
        What is wrong with the tensor's form; empty if it was copied.
    """
    return copied(arena.tensor(region), tensor)


def copied(target: torch.Tensor, tensor: torch.Tensor) -> str:
    """Copies a tensor into another.

    Returns:
        What is wrong with the tensor's form; empty if it was copied.
    """
    if type(tensor) not in _TENSORS:  # copying a subclass may run its own code
        return f"type {type(tensor).__name__}, not torch.Tensor"
    if tensor.shape != target.shape:
        return f"shape {list(tensor.shape)}, expected {list(target.shape)}"
    if tensor.dtype != target.dtype:
        return f"dtype {dtype_name(tensor.dtype)}, expected {dtype_name(target.dtype)}"
    if tensor.layout is not torch.strided:
        return f"layout {tensor.layout}, expected a dense tensor"
    with torch.no_grad():
        target.copy_(tensor)
    return ""


def _described(tensor: torch.Tensor, device: torch.device) -> OutputTensor:
    """Describes the form of a returned tensor, and whatever prevents the worker from copying it."""
    fault = ""
    if tensor.layout is not torch.strided:
        fault = f"has layout {tensor.layout}, expected a dense tensor"
    elif tensor.device != device:
        fault = f"lies on device {tensor.device}, expected {device}"
    return OutputTensor(tuple(tensor.shape), dtype_name(tensor.dtype), tensor.requires_grad, fault)

"""Variations of inputs and cotangents that a worker makes, and that the judge tries on the reference first."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

#: The most elements of a tensor that a call gets as a copy of its own.
MOST_COPIED = 1 << 24
#: Elements between two rows of a cotangent ``with_gaps`` along the last dimension; kernels that load
#: 16 bytes at a time still can.
GAP = 64
#: Fewer integers than this may well be sizes or offsets, which mean nothing in another order.
FEWEST_INTEGERS = 16


def is_differentiable(value: Any) -> bool:
    """Returns whether a value is a tensor that can need a gradient.

    Floats of 8 bits are codes, like integers: torch computes nothing with them.
    """
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1


def with_operators(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that torch can compare and flip: floats of 8 bits as the bytes that they are."""
    return tensor.view(torch.uint8) if tensor.is_floating_point() and tensor.itemsize == 1 else tensor


def is_finite(tensor: torch.Tensor) -> bool:
    """Returns whether all elements are finite, also of floats of 8 bits."""
    return bool(torch.isfinite(tensor.float() if tensor.itemsize == 1 else tensor).all())


def can_reorder(value: Any) -> bool:
    """Returns whether elements of an input may change places.

    Few integers, a rising row of them (offsets) and complex numbers stay as they are.
    """
    if not isinstance(value, torch.Tensor) or value.is_complex() or value.numel() < 2:
        return False
    if is_differentiable(value):
        return True
    value = with_operators(value)
    rises = value.dim() == 1 and bool((value[1:] >= value[:-1]).all())
    return value.numel() >= FEWEST_INTEGERS and not rises


def longest_axis(tensor: torch.Tensor) -> int:
    """Returns a tensor's longest dimension, the first of several.

    Integers change places along it alone, so that rows and columns of a table keep their meanings:
    the two rows of a graph's edges, or the fields of a sample.
    """
    return max(range(tensor.dim()), key=lambda dim: tensor.shape[dim])


def reversed_input(value: Any) -> Any:
    """Returns a tensor with its elements reversed, as a new leaf; anything else unchanged."""
    if not can_reorder(value):
        return value
    axes = range(value.dim()) if is_differentiable(value) else [longest_axis(value)]
    turned = with_operators(value.detach()).flip(tuple(axes))
    return turned.view(value.dtype).requires_grad_(value.requires_grad)


def with_gaps(cotangent: torch.Tensor, along: Collection[int]) -> torch.Tensor:
    """Returns a cotangent with gaps in memory, as the backward of ``torch.cat`` gives it.

    In the gaps there is NaN.

    Args:
        cotangent: The cotangent.
        along: The dimensions that continue in the gaps: -1 for gaps between rows, 1 between samples.
    """
    if cotangent.dim() < 2 or not cotangent.is_floating_point() or cotangent.numel() > MOST_COPIED:
        return cotangent
    shape = list(cotangent.shape)
    for dimension in {one % cotangent.dim() for one in along}:
        shape[dimension] += GAP if dimension == cotangent.dim() - 1 else 1
    around = cotangent.new_full(shape, float("nan"))
    return around[tuple(slice(size) for size in cotangent.shape)].copy_(cotangent)

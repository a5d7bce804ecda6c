"""Changes floating inputs beyond what a problem draws; each function takes a tensor and a seed and returns another."""

from __future__ import annotations

import math
import random

import torch

#: What inputs are multiplied with to be large: then float32's exponentials overflow. First and last elements become
#: as large as it takes to be this share of a sum over all.
LARGE, SPREAD = 128.0, 256.0
#: What inputs are multiplied with to be small: then an eps of 1e-8 or more counts beside their squares.
SMALL = 2.0**-10


def with_both_signs(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a tensor in which about half of the elements have the other sign."""
    generator = torch.Generator(value.device).manual_seed(seed)
    return torch.where(torch.rand(value.shape, generator=generator, device=value.device) < 0.5, value, -value)


def partly_zero(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a tensor with zeros in about half of it, and in its first sample."""
    generator = torch.Generator(value.device).manual_seed(seed)
    is_zero = torch.rand(value.shape, generator=generator, device=value.device) < 0.5
    is_zero[:1] = True
    return value.masked_fill(is_zero, 0.0)


def enlarged(value: torch.Tensor, seed: int) -> torch.Tensor:
    """Return ``LARGE`` times a tensor, with a first and a last element that count in a sum over all."""
    value = value.clone(memory_format=torch.contiguous_format) * LARGE
    above = value.abs().max() * max(2.0, value.numel() / SPREAD) * (1.0 + random.Random(seed).random())
    value.view(-1)[0], value.view(-1)[-1] = above, 2 * above
    return value


def reduced(value: torch.Tensor, _: int) -> torch.Tensor:
    """Return ``SMALL`` times a tensor."""
    return value * SMALL


def with_extremes_at_ends(value: torch.Tensor, _: int) -> torch.Tensor:
    """Return a tensor with the largest or the smallest element of each row, column and so on last, or first."""
    value = value.clone()
    for dim in (dim for dim, extent in enumerate(value.shape) if extent > 1):
        lines = (*value.shape[:dim], 1, *value.shape[dim + 1 :])
        turn = torch.arange(math.prod(lines), device=value.device).reshape(lines) % 4
        place = torch.where(turn < 2, value.argmax(dim, True), value.argmin(dim, True))
        end = torch.where(turn % 2 == 0, value.shape[dim] - 1, 0)
        extreme, other = value.gather(dim, place), value.gather(dim, end)
        value.scatter_(dim, place, other).scatter_(dim, end, extreme)
    return value

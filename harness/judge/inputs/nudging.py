"""Inputs moved by one rounding: what that changes downstream is what rounding may change there.

Three eager runs may round alike to the bit, and be lucky together: permuting the batch changes nothing in a sample
whose sums are short. Runs that begin one rounding away do not, and what is ill-conditioned (the variance of nearly
equal values) shows by how much. See docs/numerics.md.
"""

from __future__ import annotations

import torch

#: Numbers of so many bits of the mantissa stay: integers, masks, halves. Models compare them with constants, and
#: compute with them exactly (``1 - mask``), so that nobody rounds them.
PLAIN_BITS = 11
_MANTISSA_BITS = 23
#: Of Knuth's multiplicative hash: 2^32 over the golden ratio, as a signed number.
_MULTIPLIER = 0x9E3779B1 - 2**32


def nudged(values: torch.Tensor, seed: int) -> torch.Tensor:
    """Every float32 value replaced by the next one up or down.

    Which of the two depends on the value and the seed alone: equal values stay equal, and ties between them ties.

    Args:
        values: A tensor. What is not float32, zeros, non-finite values, and those of ``PLAIN_BITS`` bits stay.
        seed: Any; its lower 31 bits count.

    Returns:
        A tensor of the same shape; the same one where its dtype is not float32.
    """
    if values.dtype is not torch.float32:
        return values
    bits = values.detach().contiguous().view(torch.int32)
    mixed = bits ^ (seed & 0x7FFFFFFF)
    for _ in range(2):
        mixed.mul_(_MULTIPLIER).bitwise_xor_(mixed >> 15)
    mixed.mul_(_MULTIPLIER)
    is_plain = (bits & ((1 << (_MANTISSA_BITS - PLAIN_BITS)) - 1)) == 0
    step = mixed.bitwise_right_shift_(31).bitwise_or_(1).masked_fill_(is_plain, 0)
    moved = step.add_(bits).view(torch.float32)
    return torch.where(moved.isfinite(), moved, values.detach())

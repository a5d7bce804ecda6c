"""Changes inputs by one rounding step, to measure how much rounding may change results.

Three eager runs may round alike to the bit, and be lucky together: permuting the batch changes
nothing in a sample whose sums are short. Runs that begin one rounding away differ. They show how
ill-conditioned a computation is, such as the variance of nearly equal values. See docs/numerics.md.
"""

from __future__ import annotations

import torch

#: Numbers with at most this many mantissa bits stay unchanged: integers, masks, halves. Models compare them with
#: constants and compute with them exactly (``1 - mask``), so nothing rounds them.
PLAIN_BITS = 11
_MANTISSA_BITS = 23
#: Knuth's multiplicative hash: 2^32 over the golden ratio, as a signed number.
_MULTIPLIER = 0x9E3779B1 - 2**32


def nudged(values: torch.Tensor, seed: int) -> torch.Tensor:
    """Replace every float32 value by the next one up or down.

    The choice depends on the value and the seed alone: equal values stay equal, and ties between
    them stay ties.

    Args:
        values: A tensor. Zeros, values that are not finite, and those of ``PLAIN_BITS`` bits stay.
        seed: Any integer; its lower 31 bits count.

    Returns:
        A tensor of the same shape; the same tensor if its dtype is not float32.
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

"""Says what wrong elements hold: a constant, a multiple of the expected value, a shifted tensor.

It tries each explanation on a sample of the wrong elements. It reports one only where nearly all of
the sample agree.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

#: The part of a sample that must agree with an explanation.
AGREEING = 0.98
#: An explanation counts if at most this part of the error is left.
LEFT = 0.2
#: The fewest elements for fitting a number, and for seeing a movement.
FEWEST_FOR_A_NUMBER, FEWEST_FOR_A_MOVEMENT = 8, 24
#: The shifts to try, along a dimension and in the flattened tensor.
SHIFTS = (1, -1, 2, -2, 4, -4)
#: How many indices of a dimension are compared, and how many elements of each.
INDICES, COMPARED = 16, 64
#: The longest dimension that is searched for mixed-up indices.
LONGEST_PERMUTED = 4096
#: A factor counts as 1, and an offset as 0, if it is off by no more than this part.
SAME = 1e-4


class Sample(NamedTuple):
    """Some of the wrong elements of a tensor.

    Attributes:
        received: The whole tensor, or a piece of it.
        exact: The float64 reference of the same shape.
        flat: Positions of wrong elements in the flattened tensor, shape (m,).
        allowed: The error that each of these may have, shape (m,).
        is_whole: Whether ``received`` is the whole tensor.
        first_row: Index along dimension 0 at which the piece begins.
    """

    received: torch.Tensor
    exact: torch.Tensor
    flat: torch.Tensor
    allowed: torch.Tensor
    is_whole: bool
    first_row: int

    @property
    def at(self) -> tuple[torch.Tensor, ...]:
        """The positions by dimension."""
        return torch.unravel_index(self.flat, self.exact.shape)


def resemblance(sample: Sample) -> str:
    """Describe what the wrong elements hold; empty where no description fits."""
    index = sample.at
    mine, theirs = sample.received[index].to(torch.float64), sample.exact[index]
    if float((mine.isfinite() & theirs.isfinite()).double().mean()) < AGREEING or mine.numel() < FEWEST_FOR_A_NUMBER:
        return ""
    return _number(mine, theirs) or _movement(sample, mine, theirs) or _by_index(sample)


def _number(mine: torch.Tensor, theirs: torch.Tensor) -> str:
    """Describe the elements by a constant, a factor or an offset."""
    constant = float(mine.median()) + 0.0  # Adding 0.0 turns minus zero into zero.
    if _agrees(mine == constant):
        return f"received is {constant:.6g} at all of them"
    error = (mine - theirs).abs()
    factor = float((mine / theirs)[theirs != 0].median()) if bool((theirs != 0).any()) else math.nan
    offset = float((mine - theirs).median())
    by_factor, by_offset = (mine - factor * theirs).abs(), (mine - theirs - offset).abs()
    scaled, sign = f"received is {factor:.6g} times expected", "+" if offset > 0 else "-"
    if math.isclose(factor, -1.0, rel_tol=1e-3):
        scaled = "received is expected with the opposite sign"
    fits = [
        (float(by_factor.median()), scaled, by_factor),
        (float(by_offset.median()), f"received is expected {sign} {abs(offset):.6g}", by_offset),
    ]
    for _, words, left in sorted(fits, key=lambda fit: fit[0]):
        if _agrees(left <= LEFT * error):
            return words
    factor, offset = (float(one) for one in _line(mine, theirs))
    if _agrees((mine - factor * theirs - offset).abs() <= LEFT * error):
        return f"received is {factor:.6g} times expected {'+' if offset > 0 else '-'} {abs(offset):.6g}"
    return ""


def _line(mine: torch.Tensor, theirs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Fit a factor and an offset by least squares along the last dimension, kept with extent 1."""
    mean, expected = mine.mean(dim=-1, keepdim=True), theirs.mean(dim=-1, keepdim=True)
    spread = (theirs - expected).square().sum(dim=-1, keepdim=True)
    factor = ((mine - mean) * (theirs - expected)).sum(dim=-1, keepdim=True) / spread
    return factor, mean - factor * expected


def _movement(sample: Sample, mine: torch.Tensor, theirs: torch.Tensor) -> str:
    """Describe the elements by the shift, swap or transposition with which most of them agree."""
    best, words = 0, ""
    tolerance = torch.minimum(2 * sample.allowed, LEFT * (mine - theirs).abs())
    for name, origin, inside in _origins(sample):
        source = torch.unravel_index(torch.where(inside, origin, 0), sample.exact.shape)
        same = ((mine - sample.exact[source]).abs() <= tolerance) & inside
        agreeing, seen = int(same.sum()), int(inside.sum())
        if seen >= FEWEST_FOR_A_MOVEMENT and agreeing >= AGREEING * seen and agreeing > best:
            best, words = agreeing, name
    return words


def _origins(sample: Sample) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield each movement in words, the flat positions it takes elements from, which lie inside."""
    shape, index, flat = sample.exact.shape, sample.at, sample.flat
    everywhere = torch.ones_like(flat, dtype=torch.bool)
    strides = [math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
    for dimension, extent in enumerate(shape):
        for by in SHIFTS:
            source = index[dimension] - by
            inside = (source >= 0) & (source < extent)
            words = f"received is expected shifted by {by} along dimension {dimension}"
            yield words, flat - by * strides[dimension], inside
    if len(shape) > 1:
        for by in SHIFTS:
            source = flat - by
            inside = (source >= 0) & (source < sample.exact.numel())
            yield f"received is expected shifted by {by} in the flattened tensor", source, inside
    movable = range(0 if sample.is_whole else 1, len(shape))
    for dimension in movable:
        extent, at = shape[dimension], index[dimension]
        rest = flat - at * strides[dimension]
        if extent > 2:
            source = rest + (extent - 1 - at) * strides[dimension]
            yield f"received is expected reversed along dimension {dimension}", source, everywhere
        if extent % 2 == 0:
            source = rest + (at + extent // 2) % extent * strides[dimension]
            yield f"received is expected with the halves of dimension {dimension} swapped", source, everywhere
    for order, words in _layouts(movable):
        # The expected tensor with its dimensions in this order, its elements then read in their own
        # order.
        laid = torch.unravel_index(flat, tuple(shape[dimension] for dimension in order))
        source = torch.zeros_like(flat)
        for dimension, at in zip(order, laid, strict=True):
            source += at * strides[dimension]
        yield words, source, everywhere


def _layouts(movable: range) -> Iterator[tuple[list[int], str]]:
    """Yield other orders of the dimensions, with words for them."""
    every = range(movable.stop)
    for first, second in itertools.combinations(movable, 2):
        order = list(every)
        order[first], order[second] = second, first
        yield order, f"received is expected with dimensions {first} and {second} transposed"
    if len(every) > 3:
        last = len(every) - 1
        yield [0, *range(2, last + 1), 1], "received is expected with dimension 1 moved to the end"
        yield [0, last, *range(1, last)], "received is expected with the last dimension moved to dimension 1"


def _by_index(sample: Sample) -> str:
    """Describe mixed-up indices of a dimension, or a factor or offset that each index has."""
    for dimension, extent in enumerate(sample.exact.shape):
        wrong = sorted(set(sample.at[dimension].tolist()))
        if len(wrong) < 2 or sample.exact.numel() < COMPARED * extent:
            continue
        chosen = torch.tensor(wrong[:: -(-len(wrong) // INDICES)], device=sample.exact.device)
        spots = _spots(sample.exact.shape, dimension, sample.exact.device)
        received, exact = sample.received.movedim(dimension, 0), sample.exact.movedim(dimension, 0)
        mine, theirs = received[(chosen[:, None], *spots)].to(torch.float64), exact[(chosen[:, None], *spots)]
        tolerance = 2 * sample.allowed.max()
        first = sample.first_row if dimension == 0 else 0
        if extent <= LONGEST_PERMUTED:
            all_of_them = exact[(torch.arange(extent, device=chosen.device)[:, None], *spots)]
            if words := _mixed_up(mine, all_of_them, chosen, tolerance, first):
                return f"indices of dimension {dimension} are mixed up: {words}"
        if words := _lines(mine, theirs, tolerance):
            return words.format(dimension=dimension)
    return ""


def _mixed_up(
    mine: torch.Tensor, exact: torch.Tensor, chosen: torch.Tensor, tolerance: torch.Tensor, first: int
) -> str:
    """Describe which indices hold values that belong at other indices.

    Args:
        mine: Received values at the chosen indices, shape (k, m).
        exact: Expected values at all indices, shape (n, m).
        chosen: The chosen indices, shape (k,).
        tolerance: The largest difference between values that count as equal.
        first: Index of the whole tensor's dimension that is 0 here.
    """
    same = (mine[:, None] - exact[None]).abs() <= tolerance
    share = same.double().mean(dim=2)
    best, origin = share.max(dim=1)
    unique = (share >= AGREEING).sum(dim=1) == 1
    if not bool(((best >= AGREEING) & unique & (origin != chosen)).all()):
        return ""
    pairs = zip((chosen + first).tolist(), (origin + first).tolist(), strict=True)
    return ", ".join(f"{at} holds the value that belongs at {belongs}" for at, belongs in itertools.islice(pairs, 2))


def _lines(mine: torch.Tensor, theirs: torch.Tensor, tolerance: torch.Tensor) -> str:
    """Describe received as a factor times expected plus an offset, fitted for each index.

    Both tensors have shape (k, m).
    """
    factor, offset = _line(mine, theirs)
    error, left = (mine - theirs).abs(), (mine - factor * theirs - offset).abs()
    is_wrong = error > tolerance
    if not _agrees(left <= torch.where(is_wrong, LEFT * error, tolerance)) or float(is_wrong.double().mean()) < 0.5:
        return ""
    scale = theirs.square().mean().sqrt()
    has_factor, has_offset = bool(((factor - 1).abs() > SAME).any()), bool((offset.abs() > SAME * scale).any())
    kinds = " and ".join(word for word, has in (("a factor", has_factor), ("an offset", has_offset)) if has)
    if not kinds:
        return ""
    return f"received is expected with {kinds} per index of dimension {{dimension}}"


def _spots(shape: torch.Size, dimension: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Choose places in the other dimensions, the same ones each time."""
    generator = torch.Generator().manual_seed(dimension)
    others = [extent for other, extent in enumerate(shape) if other != dimension]
    return tuple(torch.randint(extent, (COMPARED,), generator=generator).to(device) for extent in others)


def _agrees(fits: torch.Tensor) -> bool:
    return float(fits.double().mean()) >= AGREEING

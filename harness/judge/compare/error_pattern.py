"""Examines a failing tensor: its worst element, the number of wrong ones, and their pattern.

An element is wrong if its error exceeds what the maximum norm's budget leaves one element. If a
tensor fails only by its L2 norm, the pattern describes the elements beyond the L2 budget. The
description helps to find the bug and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.judge.compare.error_content import FEWEST_FOR_A_NUMBER, Sample, resemblance
from harness.judge.compare.error_location import CHUNK, DENSE, ErrorLocation, joined_place, place_of, told
from harness.judge.reference.equivalence import Allowance, Slices


@dataclass(frozen=True)
class Element:
    """One element of a tensor, as received and as expected.

    Attributes:
        index: Its index in the whole tensor.
        received: The candidate's value.
        expected: The value of the float64 reference.
        eager: The value of eager PyTorch; None where it was not kept.
        allowed: The largest error that it may have.
    """

    index: tuple[int, ...]
    received: float
    expected: float
    eager: float | None
    allowed: float

    @property
    def share(self) -> float:
        """Its error over the allowed error; infinite where the ratio is not defined."""
        error = abs(self.received - self.expected)
        if not math.isfinite(error):
            return math.inf
        return error / self.allowed if self.allowed > 0 else math.inf


@dataclass(frozen=True)
class ErrorPattern:
    """The errors seen in a failing tensor, or in a piece of it along dimension 0.

    Attributes:
        worst: The element with the largest error over its allowed error.
        wrong: Number of wrong elements.
        place: Where they are, or where those beyond the L2 budget are. None where there are none.
        unset: How many of them are NaN.
        infinite: How many of them are infinite.
        holds: What they hold, in words; may be empty.
    """

    worst: Element
    wrong: int
    place: ErrorLocation | None
    unset: int
    infinite: int
    holds: str


def worst_index(received: torch.Tensor, exact: torch.Tensor, error: Slices, unit: torch.Tensor) -> tuple[int, ...]:
    """Return the index of the largest error, in units that differ from slice to slice.

    Args:
        received: The tensor, or a piece of it.
        exact: The float64 reference of the same shape, with at least one element.
        error: The result of ``equivalence.deviation`` for the two.
        unit: The unit of each slice's errors, shape (n,).
    """
    row: tuple[int, ...] = ()
    if error.by_slice:
        row = (int(torch.where(error.maximum > 0, error.maximum / unit, 0.0).argmax()),)
    received, exact = received[row], exact[row]
    if not exact.dim():
        return row
    largest, flat, seen = -1.0, 0, 0
    for _, mine, theirs in _parts(received, exact):
        off = (mine - theirs).abs_()
        off.masked_fill_(off.isnan(), math.inf)
        off.masked_fill_((mine == theirs) | (mine.isnan() & theirs.isnan()), 0.0)
        if float(off.max()) > largest:
            largest, flat = float(off.max()), seen + int(off.argmax())
        seen += off.numel()
    return (*row, *(int(at) for at in torch.unravel_index(torch.tensor(flat), exact.shape)))


def look(
    received: torch.Tensor,
    exact: torch.Tensor,
    allowance: Allowance,
    worst: tuple[int, ...],
    *,
    eager: float | None = None,
    first_row: int | None = None,
) -> ErrorPattern:
    """Describe the errors in a tensor, or in a piece of it.

    Beside the two tensors this needs one byte per element, and for a while half the tensor's
    memory.

    Args:
        received: The tensor, floating.
        exact: The float64 reference of the same shape.
        allowance: The error that an element may have, by slice of dimension 0.
        worst: Index of the worst element.
        eager: Eager's value there.
        first_row: Index along dimension 0 at which the piece begins. None for the whole tensor.
    """
    first = first_row or 0
    allowance = Allowance(*(limit.to(exact.device) for limit in allowance))
    limit = allowance.maximum
    slice_of_worst = worst[0] if limit.numel() > 1 else 0
    element = Element(
        (worst[0] + first, *worst[1:]) if worst else (),
        float(received[worst]),
        float(exact[worst]),
        eager,
        float(limit[slice_of_worst]),
    )
    if not exact.dim():
        received, exact = received.reshape(1), exact.reshape(1)
    found = place_of(_beyond(received, exact, limit), first)
    wrong = found[0].count if found is not None else 0
    if found is None:
        limit = allowance.l2
        found = place_of(_beyond(received, exact, limit), first)
    if found is None:
        return ErrorPattern(element, wrong=0, place=None, unset=0, infinite=0, holds="")
    place, flat = found
    unset, infinite = _not_finite(received, exact)
    # More elements may be wrong in the same way, but by less.
    if wrong < FEWEST_FOR_A_NUMBER and limit is not allowance.l2:
        limit = allowance.l2
        found = place_of(_beyond(received, exact, limit), first)
        flat = flat if found is None else found[1]
    index = torch.unravel_index(flat, exact.shape)
    each = limit[index[0]] if limit.numel() > 1 else limit.expand(flat.numel())
    holds = resemblance(
        Sample(received, exact=exact, flat=flat, allowed=each, is_whole=first_row is None, first_row=first)
    )
    return ErrorPattern(element, wrong=wrong, place=place, unset=unset, infinite=infinite, holds=holds)


def summary(looks: Sequence[ErrorPattern], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return fields of ``records.TensorReport`` from the patterns of a tensor's pieces, in order.

    Args:
        looks: Patterns of the pieces that may be wrong. Without any the summary is empty.
        shape: Shape of the whole tensor.
    """
    if not looks:
        return {}
    worst = max((one.worst for one in looks), key=lambda element: element.share)
    wrong = sum(one.wrong for one in looks)
    seen = [one for one in looks if one.place is not None and (one.wrong or not wrong)]
    places = [one.place for one in seen if one.place is not None]
    place = joined_place(places, shape[0] if shape else 1) if places else None
    return {
        "worst_index": worst.index,
        "received": worst.received,
        "expected": worst.expected,
        "eager": worst.eager,
        "allowed": worst.allowed,
        "wrong": wrong,
        "pattern": "" if place is None else _pattern(seen, place),
        "wrong_grid": () if place is None else tuple(tuple(map(_rounded_up, row)) for row in place.grid.tolist()),
    }


def _rounded_up(share: float) -> float:
    """Round a share to a thousandth, but none to zero that is more."""
    return max(round(share, 3), 0.001) if share > 0 else 0.0


def _pattern(seen: Sequence[ErrorPattern], place: ErrorLocation) -> str:
    """Describe the common pattern of pieces whose wrong elements are counted in the same way.

    Args:
        seen: The patterns of the pieces that have wrong elements.
        place: Where these are in the whole tensor.
    """
    holds = {one.holds for one in seen}
    is_told = len(holds) == 1 and "" not in holds
    # What nearly all elements hold matters more than which few of them are right by chance.
    words = [] if is_told and place.count >= DENSE * math.prod(place.shape) else [told(place)]
    if not any(one.wrong for one in seen):
        words.insert(0, f"small errors in {place.count} of them")
    for count, name in ((sum(one.unset for one in seen), "NaN"), (sum(one.infinite for one in seen), "infinite")):
        hint = ", as if nothing was written there" if name == "NaN" else ""
        if count == place.count > 1:
            words.append(f"all of them {name}{hint}")
        elif 0 < count < place.count:
            words.append(f"{count} of them {name}")
    if is_told:
        words.extend(holds)
    return "; ".join(filter(None, words))


def _beyond(received: torch.Tensor, exact: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
    """Mark elements that exceed their slice's limit or that are not finite where they should be."""
    mask = torch.empty(exact.shape, dtype=torch.bool, device=exact.device)
    for rows, mine, theirs in _parts(received, exact):
        most = limit.view(-1, *[1] * (theirs.dim() - 1))
        fits = (mine - theirs).abs_() <= (most[rows] if limit.numel() > 1 else most)
        fits |= mine == theirs
        fits |= mine.isnan() & theirs.isnan()
        _without_leading_ones(mask)[rows] = fits.logical_not_()
    return mask


def _not_finite(received: torch.Tensor, exact: torch.Tensor) -> tuple[int, int]:
    """Count the elements that are NaN, and the infinite ones, where the reference is not."""
    unset = infinite = 0
    for _, mine, theirs in _parts(received, exact):
        unset += int((mine.isnan() & ~theirs.isnan()).sum(dtype=torch.int64))
        infinite += int((mine.isinf() & (mine != theirs)).sum(dtype=torch.int64))
    return unset, infinite


def _parts(received: torch.Tensor, exact: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Yield groups of rows of both tensors, small enough to compute on in little memory."""
    received, exact = _without_leading_ones(received), _without_leading_ones(exact)
    count = exact.shape[0]
    step = max(1, CHUNK * count // max(exact.numel(), 1))
    for start in range(0, count, step):
        rows = slice(start, start + step)
        yield rows, received[rows], exact[rows]


def _without_leading_ones(tensor: torch.Tensor) -> torch.Tensor:
    while tensor.dim() > 1 and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor

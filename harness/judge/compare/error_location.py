"""Where a tensor's wrong elements lie, in words: an index of a dimension, a tail, every k-th element.

A place is told only if it is hardly chance: of all choices of so many elements, how few fit one so described. What is
kept of a tensor are reductions of its mask of wrong elements, so that the places in pieces of it join to the whole's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

#: The part of a place's elements that must be wrong for the place to be told as what is wrong, not as where it is.
DENSE = 0.9
#: Natural logarithm of how unlikely a place must be by chance, in the dense and in the sparse case.
UNLIKELY, VERY_UNLIKELY = math.log(1e3), math.log(1e6)
#: Elements that are looked at in one step.
CHUNK = 1 << 24
#: Wrong elements that a step between them is guessed from.
STEP_SAMPLES = 4096
#: Dimensions longer than this are not looked at index by index.
LONGEST = 1 << 22
#: The most indices that are listed.
LISTED = 6


@dataclass(frozen=True)
class ErrorLocation:
    """Reductions of a mask of wrong elements, of a tensor or of a piece of it along dimension 0.

    Attributes:
        shape: Shape of the piece, at least one dimension.
        first_row: Index along dimension 0 that the piece begins at.
        count: Wrong elements, at least one.
        touched: For each dimension which of its indices have wrong elements, bool on the CPU; None for a long one.
        first: Position in the flattened tensor of the first wrong element.
        last: Of the last one.
        inner: The same within blocks of the last dimensions: of all but the first, of all but the first two, ...
        step: Elements are wrong only ``step`` apart from each other in the flattened tensor; 0 where that is unknown.
    """

    shape: tuple[int, ...]
    first_row: int
    count: int
    touched: tuple[torch.Tensor | None, ...]
    first: int
    last: int
    inner: tuple[tuple[int, int], ...]
    step: int


def place_of(mask: torch.Tensor, first_row: int = 0) -> tuple[ErrorLocation, torch.Tensor] | None:
    """The reductions of a mask, and the positions of some of its elements.

    Args:
        mask: True where an element is wrong, contiguous, bool, at least one dimension.
        first_row: Index along dimension 0 that it begins at.

    Returns:
        The place, and positions in the flattened mask of up to ``STEP_SAMPLES`` wrong elements, the same ones each
        time; None where none is wrong.
    """
    flat = mask.reshape(-1)
    count = int(flat.sum(dtype=torch.int64))
    if count == 0:
        return None
    ends: list[tuple[int, int]] = []
    step = 0
    samples = []
    generator = torch.Generator().manual_seed(count)
    for start in range(0, flat.numel(), CHUNK):
        found = flat[start : start + CHUNK].nonzero().squeeze(1)
        if not found.numel():
            continue
        if not ends:
            some = found[:STEP_SAMPLES]
            step = math.gcd(*(some[1:] - some[0]).tolist())
        ends.append((start + int(found[0]), start + int(found[-1])))
        wanted = -(-STEP_SAMPLES * found.numel() // count)
        if wanted < found.numel():
            found = found[torch.randint(found.numel(), (wanted,), generator=generator).to(found.device)]
        samples.append(start + found)
    first, last = ends[0][0], ends[-1][1]
    if step > 1 and int(flat[first::step].sum(dtype=torch.int64)) != count:
        step = 0
    shape = tuple(mask.shape)
    inner = []
    for split in range(1, len(shape) - 1):
        block = mask.reshape(math.prod(shape[:split]), -1).any(dim=0)
        found = block.view(torch.uint8)
        inner.append((int(found.argmax()), block.numel() - 1 - int(found.flip(0).argmax())))
    offset = first_row * math.prod(shape[1:])
    place = ErrorLocation(shape, first_row, count, _touched(mask), offset + first, offset + last, tuple(inner), step)
    return place, torch.cat(samples)


def _touched(mask: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    results: list[torch.Tensor | None] = []
    for dimension, extent in enumerate(mask.shape):
        if extent > LONGEST:
            results.append(None)
            continue
        rows = mask.reshape(math.prod(mask.shape[:dimension]), extent, -1)
        results.append(rows.any(dim=2).any(dim=0).cpu())
    return tuple(results)


def joined_place(places: Sequence[ErrorLocation], rows: int) -> ErrorLocation:
    """The place in a tensor from those in its pieces along dimension 0.

    Args:
        places: Of the pieces that have wrong elements, at least one, in order.
        rows: The whole tensor's extent along dimension 0.
    """
    whole = places[0]
    step = whole.step
    for other in places[1:]:
        step = math.gcd(step, other.step, other.first - whole.first) if step and other.step else 0
    along: torch.Tensor | None = torch.zeros(rows, dtype=torch.bool)
    for place in places:
        if place.touched[0] is None or along is None:
            along = None
        else:
            along[place.first_row : place.first_row + place.shape[0]] = place.touched[0]
    touched = [along]
    for same in zip(*(place.touched[1:] for place in places), strict=True):
        present = [vector for vector in same if vector is not None]
        touched.append(torch.stack(present).any(dim=0) if len(present) == len(same) else None)
    return replace(
        whole,
        shape=(rows, *whole.shape[1:]),
        first_row=0,
        count=sum(place.count for place in places),
        touched=tuple(touched),
        last=places[-1].last,
        inner=tuple(
            (min(low for low, _ in same), max(high for _, high in same))
            for same in zip(*(place.inner for place in places), strict=True)
        ),
        step=step,
    )


class _Region(NamedTuple):
    """A part of a tensor.

    Attributes:
        words: ``the elements at index 3 in dimension 1``.
        size: Its elements.
        log_choices: Natural logarithm of how many parts of this size could be described alike.
        log_sizes: The same of how many sizes there could be.
    """

    words: str
    size: int
    log_choices: float
    log_sizes: float


def told(place: ErrorLocation) -> str:
    """Where the wrong elements are; empty where no words fit, or where chance may have put them there."""
    total = math.prod(place.shape)
    limits = [_limit(dimension, touched) for dimension, touched in enumerate(place.touched)]
    given = [limit for limit in limits if limit is not None]
    box = _box(place, given)
    flat = _flat(place)
    # A head or tail that ends within a row, or takes many words as a box, is told as what it is.
    reaches_an_end = place.first == 0 or place.last == total - 1
    is_cut = len(given) > 1 and (len(given) > 2 or given[-1].dimension == len(place.shape) - 1)
    for region in (*(flat if reaches_an_end and is_cut else ()), box, *_inner(place), *flat, *_steps(place)):
        if _surprise(place.count, region.size, total) - region.log_choices < UNLIKELY:
            continue
        if place.count == region.size:
            return f"exactly {region.words}"
        if place.count >= DENSE * region.size:
            return f"nearly all of {region.words}, and no others"
    # Not all of a part, but nothing outside of it.
    telling = [
        limit
        for limit in given
        if place.count * math.log(limit.extent / limit.indices) - limit.log_choices - limit.log_sizes > VERY_UNLIKELY
    ]
    for region in (_box(place, telling), *flat):
        surprise = _surprise(place.count, region.size, total) - region.log_choices - region.log_sizes
        if surprise > VERY_UNLIKELY:
            return f"only among {region.words}"
    return ""


def _surprise(count: int, size: int, total: int) -> float:
    """Logarithm of one over the chance that ``count`` of ``total`` elements all lie in a given part of ``size``."""
    return _log_choose(total, count) - _log_choose(size, count)


class _Limit(NamedTuple):
    """The indices along a dimension that have wrong elements, where these are not all."""

    dimension: int
    words: str
    indices: int
    extent: int
    log_choices: float
    log_sizes: float


def _limit(dimension: int, touched: torch.Tensor | None) -> _Limit | None:
    if touched is None or bool(touched.all()):
        return None
    extent = touched.numel()
    indices = touched.nonzero().squeeze(1)
    count, first, last = indices.numel(), int(indices[0]), int(indices[-1])
    gaps = indices.diff() if count > 1 else torch.zeros(1)
    step = int(gaps[0]) if bool((gaps == gaps[0]).all()) else 0
    one = math.log(extent)
    if count == 1:
        words = f"index {first}" + (" (the last)" if last == extent - 1 else "")
        choices = one if first < extent - 1 else 0.0
    elif step == 1 and last == extent - 1:
        words, choices = f"index {first} and all after it", 0.0
    elif step == 1 and first == 0:
        words, choices = f"index {last} and all before it", 0.0
    elif step == 1:
        words, choices = f"indices {first} to {last}", one
    elif step and count > 2:
        words, choices = f"every {_ordinal(step)} index from {first} to {last}", 2 * one
    else:
        some = indices[:LISTED].tolist()
        choices = _log_choose(extent, count)
        if count <= LISTED:
            words = f"indices {', '.join(map(str, some[:-1]))} and {some[-1]}"
        else:
            words = f"{count} of the {extent} indices ({', '.join(map(str, some))}, ...)"
    return _Limit(dimension, f"{words} in dimension {dimension}", count, extent, choices, one)


def _box(place: ErrorLocation, limits: Sequence[_Limit]) -> _Region:
    size = math.prod(place.shape)
    for limit in limits:
        size = size // limit.extent * limit.indices
    words = "the elements at " + " and at ".join(limit.words for limit in limits)
    return _Region(
        words, size, sum(limit.log_choices for limit in limits), sum(limit.log_sizes for limit in limits)
    )  # fmt: skip


def _flat(place: ErrorLocation) -> list[_Region]:
    total = math.prod(place.shape)
    words, size, choices = _interval(place.first, place.last, total)
    return [_Region(f"{words} of the flattened tensor", size, choices, math.log(total))]


def _inner(place: ErrorLocation) -> list[_Region]:
    regions = []
    for split, (first, last) in enumerate(place.inner, start=1):
        extent = math.prod(place.shape[split:])
        words, size, choices = _interval(first, last, extent)
        blocks = f"each block of {extent} in the last {len(place.shape) - split} dimensions"
        blocks_count = math.prod(place.shape[:split])
        regions.append(_Region(f"{words} of {blocks}", size * blocks_count, choices, math.log(extent)))
    return regions


def _steps(place: ErrorLocation) -> list[_Region]:
    if place.step < 2:
        return []
    size = (place.last - place.first) // place.step + 1
    ends = "" if place.first < place.step else f" from {place.first} on"
    ends += "" if place.last + place.step >= math.prod(place.shape) else f" to {place.last}"
    words = f"every {_ordinal(place.step)} element of the flattened tensor{ends}"
    return [_Region(words, size, 2 * math.log(math.prod(place.shape)), 0.0)]


def _interval(first: int, last: int, extent: int) -> tuple[str, int, float]:
    """Words for elements in a row, how many, and the logarithm of how many such rows there are."""
    size = last - first + 1
    if last == extent - 1:
        return ("the last element" if size == 1 else f"the last {size} elements"), size, 0.0
    if first == 0:
        return ("the first element" if size == 1 else f"the first {size} elements"), size, 0.0
    return f"elements {first} to {last}", size, math.log(extent)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def _log_choose(of: int, count: int) -> float:
    return math.lgamma(of + 1) - math.lgamma(count + 1) - math.lgamma(of - count + 1)

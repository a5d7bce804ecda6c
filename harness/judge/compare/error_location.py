"""Says where wrong elements lie: at an index of a dimension, in a tail, at every k-th element.

It names a place only if chance hardly explains it. The measure is how few of all choices of so many
elements fit a place described alike. An ``ErrorLocation`` keeps reductions of the mask of wrong
elements, so the locations in pieces join to that of the whole tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

#: If at least this part of a place is wrong, the place is what is wrong. Below that it only limits
#: where wrong elements are.
DENSE = 0.9
#: Natural logarithm of the improbability that a place needs, in the dense and in the sparse case.
UNLIKELY, VERY_UNLIKELY = math.log(1e3), math.log(1e6)
#: Number of elements examined in one step.
CHUNK = 1 << 24
#: Number of wrong elements from which the step between them is guessed.
STEP_SAMPLES = 4096
#: Longer dimensions are not examined index by index.
LONGEST = 1 << 22
#: The most indices that a message lists.
LISTED = 6
#: The most rows and columns of a grid.
GRID_ROWS, GRID_COLUMNS = 16, 32


@dataclass(frozen=True)
class ErrorLocation:
    """Reductions of a mask of wrong elements, of a tensor or of a piece along dimension 0.

    Attributes:
        shape: Shape of the piece, at least one dimension.
        first_row: Index along dimension 0 at which the piece begins.
        count: Number of wrong elements, at least one.
        touched: For each dimension, which of its indices have wrong elements (bool, on the CPU).
            None for a long dimension.
        first: Position of the first wrong element in the flattened tensor.
        last: Position of the last one.
        inner: First and last position within blocks of the trailing dimensions: of all but the
            first dimension, of all but the first two, and so on.
        step: Distances between wrong elements in the flattened tensor are multiples of this; 0
            where unknown.
        grid: Share of the elements that are wrong in each cell of a grid, float64 on the CPU, of
            shape (rows, columns). Its columns divide the last dimension, and its rows all others
            taken together.
    """

    shape: tuple[int, ...]
    first_row: int
    count: int
    touched: tuple[torch.Tensor | None, ...]
    first: int
    last: int
    inner: tuple[tuple[int, int], ...]
    step: int
    grid: torch.Tensor


def place_of(mask: torch.Tensor, first_row: int = 0) -> tuple[ErrorLocation, torch.Tensor] | None:
    """Reduce a mask to a location, and sample positions of wrong elements.

    Args:
        mask: True where an element is wrong. Contiguous, bool, at least one dimension.
        first_row: Index along dimension 0 at which the mask begins.

    Returns:
        The location, and the positions in the flattened mask of up to ``STEP_SAMPLES`` wrong
        elements, the same ones each time. None where no element is wrong.
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
    place = ErrorLocation(
        shape,
        first_row=first_row,
        count=count,
        touched=_touched(mask),
        first=offset + first,
        last=offset + last,
        inner=tuple(inner),
        step=step,
        grid=_grid(mask),
    )
    return place, torch.cat(samples)


def _grid(mask: torch.Tensor) -> torch.Tensor:
    cells = mask.reshape(-1, mask.shape[-1])
    rows, columns = min(GRID_ROWS, cells.shape[0]), min(GRID_COLUMNS, cells.shape[1])
    shares = [
        part.sum(dtype=torch.int64).to(torch.float64) / max(1, part.numel())
        for band in torch.tensor_split(cells, rows)
        for part in torch.tensor_split(band, columns, dim=1)
    ]
    return torch.stack(shares).view(rows, columns).cpu()


def _joined_grid(places: Sequence[ErrorLocation], rows: int) -> torch.Tensor:
    """Return the grid of the whole tensor; pieces that are missing have no wrong elements."""
    per_row = math.prod(places[0].shape[1:-1]) if len(places[0].shape) > 1 else 1
    height = min(GRID_ROWS, rows * per_row)
    grid, parts = torch.zeros(height, places[0].grid.shape[1], dtype=torch.float64), torch.zeros(height, 1)
    for place in places:
        for row, shares in enumerate(place.grid):
            # The middle of the band decides to which band of the whole tensor it belongs.
            at = (place.first_row + (row + 0.5) / len(place.grid) * place.shape[0]) / rows
            grid[int(at * height)] += shares
            parts[int(at * height)] += 1
    bands = max(1.0, sum(len(place.grid) for place in places) / height)
    return grid / parts.clamp(min=bands)


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
    """Join the locations in pieces along dimension 0 to that of the whole tensor.

    Args:
        places: Locations in the pieces that have wrong elements, at least one, in order.
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
        grid=_joined_grid(places, rows),
    )


class _Region(NamedTuple):
    """A part of a tensor, and how many parts could be described alike.

    Attributes:
        words: For example ``the elements at index 3 in dimension 1``.
        size: Number of elements.
        log_choices: Natural logarithm of how many parts of this size could be described alike.
        log_sizes: Natural logarithm of how many sizes such a part could have.
    """

    words: str
    size: int
    log_choices: float
    log_sizes: float


def told(place: ErrorLocation) -> str:
    """Describe where the wrong elements are; empty if no pattern fits or chance may explain it."""
    total = math.prod(place.shape)
    limits = [_limit(dimension, touched) for dimension, touched in enumerate(place.touched)]
    given = [limit for limit in limits if limit is not None]
    box = _box(place, given)
    flat = _flat(place)
    # Name a head or tail as such if it ends within a row, or if describing it as a box takes many
    # words.
    reaches_an_end = place.first == 0 or place.last == total - 1
    is_cut = len(given) > 1 and (len(given) > 2 or given[-1].dimension == len(place.shape) - 1)
    for region in (*(flat if reaches_an_end and is_cut else ()), box, *_inner(place), *flat, *_steps(place)):
        if _surprise(place.count, region.size, total) - region.log_choices < UNLIKELY:
            continue
        if place.count == region.size:
            return f"exactly {region.words}"
        if place.count >= DENSE * region.size:
            return f"nearly all of {region.words}, and no others"
    # Only some of the part's elements are wrong, but none outside of it.
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
    """Return the negative log of the chance that all ``count`` wrong elements lie in a given part.

    The part has ``size`` of the tensor's ``total`` elements.
    """
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
    return _Limit(
        dimension,
        words=f"{words} in dimension {dimension}",
        indices=count,
        extent=extent,
        log_choices=choices,
        log_sizes=one,
    )


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
    """Describe a run of elements; return words, size and the log of how many such runs exist."""
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

"""Decides whether a tensor is equivalent to its float64 reference.

Errors relative to ``exact`` have two norms: relative L2, and the maximum over the RMS. Each covers
the whole tensor and every slice of dimension 0. The budget is a multiple of eager PyTorch's own
error, with a floor from the rounding unit of the precision class. docs/design/decisions.md argues
for the factors. Everything fails closed: a NaN never passes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from harness.records.record import PrecisionClass

L2_FACTOR = 8.0
MAX_FACTOR = 16.0
#: Eager's errors on perturbed inputs count at most this multiple of its errors on the inputs
#: themselves. A perturbation may flip a branch, or change a number that must stay exact.
NUDGED_FACTOR = 4.0
#: A slice whose RMS is below this share of the whole tensor's is zero but for the rounding of float64.
ROUNDING_OF_FLOAT64 = 1e-12
#: An output's largest elements are judged apart if this factor separates them from all others.
GIANT = 1e4
#: Giants of a kind are one constant, such as a mask's, but for what an ordinary element adds: none is
#: smaller than this share of the largest.
CONSTANT = 0.999
#: The most kinds of giants that are judged apart.
MOST_KINDS = 8
#: From here on an element is no result whose rounding could make up the rest, but a dtype's limit.
BEYOND_RESULTS = 1e30
#: Number of elements that mostly show that there is no such gap.
GLANCE = 1 << 8
#: Number of elements whose magnitudes are copied at a time.
PIECE = 1 << 20


class LeastBudget(NamedTuple):
    """The least budget of a precision class in both norms, relative errors without a unit."""

    l2: float
    maximum: float


#: Budget floors. fp32 rounds at 2^-23. The lower classes round at 2^-10 and 2^-7; their floor of one
#: rounding is for 16-bit tensors. Their float32 tensors get ``reduced_precision.operands_floors``.
FLOORS = {
    PrecisionClass.FP32: LeastBudget(32 * 2.0**-23, 256 * 2.0**-23),
    PrecisionClass.TEN_BIT: LeastBudget(2.0**-10, 16 * 2.0**-10),
    PrecisionClass.SEVEN_BIT: LeastBudget(2.0**-7, 16 * 2.0**-7),
}


#: Tolerances of ``--precision relaxed``, which apply whatever eager's error is. In L2 they are those
#: of torch's own tests for float32 and for half precision: 1e-4 and 1e-2. The maximum norm has
#: sixteen times that.
RELAXED = {
    PrecisionClass.FP32: LeastBudget(1e-4, 16e-4),
    PrecisionClass.TEN_BIT: LeastBudget(1e-2, 16e-2),
    PrecisionClass.SEVEN_BIT: LeastBudget(1e-2, 16e-2),
}


class Errors(NamedTuple):
    """Relative errors of one tensor: of the whole, and of the worst slice. NaN and infinity fail."""

    l2: float
    maximum: float
    slice_l2: float
    slice_maximum: float

    def worst(self, other: Errors) -> Errors:
        """Return the larger of each error, NaN if either is NaN."""
        return Errors(*(_larger(mine, theirs) for mine, theirs in zip(self, other, strict=True)))

    def at_most(self, factor: float, other: Errors) -> Errors:
        """Limit each error to ``factor`` times the other's."""
        return Errors(*(min(mine, factor * theirs) for mine, theirs in zip(self, other, strict=True)))


NO_ERROR = Errors(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Slices:
    """Sums over each slice of dimension 0, kept on the CPU, so that pieces of a tensor join.

    A tensor of fewer than two dimensions, or with slices of one element, counts as one slice. A
    single element that cancellation left small has no norm of its own to be relative to. The
    maximum norm covers it.

    Attributes:
        squares: Sum of squares over each slice, float64 of shape (n,).
        maximum: Largest magnitude in each slice, float64 of shape (n,). Not finite where an element
            is not. NaN in the sums of a reference, where nothing uses it.
        elements: Number of elements in one slice.
        by_slice: Whether slices are judged beside the whole tensor.
    """

    squares: torch.Tensor
    maximum: torch.Tensor
    elements: int
    by_slice: bool

    @property
    def rms(self) -> float:
        """Root mean square over the whole tensor."""
        total = self.elements * self.squares.numel()
        return math.sqrt(float(self.squares.sum()) / total) if total else 0.0

    @property
    def slice_rms(self) -> torch.Tensor:
        """Root mean square over each slice, shape (n,)."""
        return (self.squares / max(self.elements, 1)).sqrt()

    @property
    def own_or_whole(self) -> torch.Tensor:
        """RMS by which each slice's errors are divided, shape (n,).

        A slice that is zero but for float64's rounding has no RMS of its own and uses the whole tensor's.
        """
        own = self.slice_rms
        return torch.where(own > ROUNDING_OF_FLOAT64 * self.rms, own, self.rms)

    def rows(self, first: int, count: int) -> Slices:
        """Return the sums of ``count`` slices from ``first`` on, or of all if there is one slice."""
        piece = slice(first, first + count) if self.by_slice else slice(None)
        return Slices(self.squares[piece], self.maximum[piece], self.elements, self.by_slice)

    def at_most(self, factor: float, other: Slices) -> Slices:
        """Return these sums, but for magnitudes no larger than ``factor`` times the other's, slice by slice.

        A slice of the other's counts at least its share here of the other's whole: chance may have
        made it small, where it is a multiple of one random sum.
        """
        squares = _share(self.squares, other.squares.sum() / self.squares.sum())
        maximum = _share(self.maximum, other.maximum.max() / self.maximum.max())
        return Slices(
            torch.minimum(self.squares, factor**2 * torch.maximum(other.squares, squares)),
            torch.minimum(self.maximum, factor * torch.maximum(other.maximum, maximum)),
            self.elements,
            self.by_slice,
        )

    def larger(self, other: Slices) -> Slices:
        """Return the larger sums of the two, slice by slice."""
        return Slices(
            torch.maximum(self.squares, other.squares),
            torch.maximum(self.maximum, other.maximum),
            self.elements,
            self.by_slice,
        )


def _share(sums: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Return sums times a ratio, zero where that is not a number or infinite."""
    return (sums * ratio).nan_to_num(0.0, 0.0, 0.0)


def joined(parts: Sequence[Slices]) -> Slices:
    """Join the sums of a tensor's pieces along dimension 0, given in order."""
    if not parts[0].by_slice:
        squares = torch.stack([part.squares.sum() for part in parts]).sum().reshape(1)
        maximum = torch.stack([part.maximum.max() for part in parts]).max().reshape(1)
        return Slices(squares, maximum, sum(part.elements for part in parts), False)
    return Slices(
        torch.cat([part.squares for part in parts]),
        torch.cat([part.maximum for part in parts]),
        parts[0].elements,
        parts[0].by_slice,
    )


class Giants(NamedTuple):
    """The elements of a tensor that are far larger than all others, such as a mask's -1e9.

    They would set the scale of the others, and hide their errors. So they count, with their errors,
    times a factor that makes the largest as large as the largest other element. Several kinds, such
    as those of two masks, have a factor each.

    Attributes:
        kinds: For each kind, the smallest first, the magnitude from which on an element belongs to
            it, and the factor.
    """

    kinds: tuple[tuple[float, float], ...]

    def are_in(self, exact: torch.Tensor) -> torch.Tensor:
        """Return which elements of ``exact`` are giants."""
        return (exact.abs() >= self.kinds[0][0]) & exact.isfinite()

    def shrunk(self, tensor: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the factors at the places that are giants in ``exact``."""
        size, result = exact.abs(), tensor
        for least, factor in self.kinds:
            result = torch.where((size >= least) & exact.isfinite(), tensor * factor, result)
        return result


def giants_of(exact: torch.Tensor) -> Giants | None:
    """Return the giants of a float64 tensor; None if no gap of ``GIANT`` separates constants from the rest."""
    exact = exact.detach()
    if not exact.numel():
        return None
    size = exact.abs()
    most = float(size.max())
    seen = sorted(size.reshape(-1)[:: exact.numel() // GLANCE + 1].tolist(), reverse=True)
    steps = [one for one, next_one in itertools.pairwise(seen) if next_one < CONSTANT * one]
    if sum(one > most / GIANT for one in steps) > MOST_KINDS:  # as nearly everywhere
        return None
    size = torch.where(size.isfinite(), size, 0.0)
    most = float(size.max())
    found: list[float] = []
    result: Giants | None = None
    while most and len(found) < MOST_KINDS:
        size = torch.where(size < CONSTANT * most, size, 0.0)
        others = float(size.max())
        found.append(most)
        if 0 < others <= most / GIANT:
            if others < ROUNDING_OF_FLOAT64 * most and most < BEYOND_RESULTS:
                break  # the rest is what rounding left of zeros
            result = Giants(tuple((CONSTANT * one, others / one) for one in reversed(found)))
        most = others
    return result


def magnitude(exact: torch.Tensor, giants: Giants | None = None) -> Slices:
    """Return the sums over a float64 reference, to which errors are relative.

    Elements that are not finite count as zero.

    Args:
        exact: The reference.
        giants: Its giants, if they are judged apart.
    """
    if giants is not None:
        exact = giants.shrunk(exact, exact)
    rows, by_slice = _rows(exact)
    squares = _squares(rows)
    if not bool(torch.isfinite(squares).all()):
        squares = _squares(_rows(torch.where(torch.isfinite(exact), exact, 0.0))[0])
    return Slices(squares, torch.full_like(squares, math.nan), rows.shape[1], by_slice)


def deviation(
    received: torch.Tensor,
    exact: torch.Tensor,
    excused: torch.Tensor | None = None,
    giants: Giants | None = None,
) -> Slices:
    """Return the sums over ``received - exact``.

    Args:
        received: The tensor to judge, of the reference's shape, any floating dtype.
        exact: The float64 reference.
        excused: A finite part of each element's error that does not count; None for none.
        giants: The reference's giants, if they are judged apart.

    Returns:
        The sums, infinite in a slice where an element that is not finite differs from the
        reference's.
    """
    if giants is not None:
        received, exact = giants.shrunk(received.to(torch.float64), exact), giants.shrunk(exact, exact)
    # The subtraction runs in float64. For a float32 tensor, float32 stores the difference well
    # enough in half the memory.
    difference = torch.empty_like(exact, dtype=torch.promote_types(received.dtype, torch.float32))
    sums = _slices(_without(torch.sub(received, exact, out=difference), excused))
    if bool(torch.isfinite(sums.maximum).all()):
        return sums
    # Some element is not finite. Where the reference has the same value, that is no error.
    received = received.to(torch.float64)
    same = torch.where(torch.isnan(exact), torch.isnan(received), received == exact)
    error = torch.where(torch.isfinite(exact), received - exact, torch.where(same, 0.0, math.inf))
    return _slices(_without(torch.where(torch.isnan(error), math.inf, error), excused))


def _without(difference: torch.Tensor, excused: torch.Tensor | None) -> torch.Tensor:
    """Return the magnitude of differences less a part of each, or the differences if there is no such part."""
    if excused is None:
        return difference
    return difference.abs_().sub_(excused.to(difference.device, difference.dtype)).clamp_(min=0)


def beyond(error: Slices, explained: Slices) -> Slices:
    """Subtract the explained part from an error, slice by slice; 0 if it is not finite."""

    def less(whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return (whole - torch.where(part.isfinite(), part, 0.0)).clamp(min=0)

    squares = less(error.squares.sqrt(), explained.squares.sqrt()).square()
    return Slices(squares, less(error.maximum, explained.maximum), error.elements, error.by_slice)


def _slices(tensor: torch.Tensor) -> Slices:
    rows, by_slice = _rows(tensor)
    if rows.shape[1] == 0:
        zero = torch.zeros(rows.shape[0], dtype=torch.float64)
        return Slices(zero, zero, 0, by_slice)
    maximum = _maxima(rows).to(torch.float64).cpu()
    in_float32 = tensor.is_cuda and tensor.dtype is torch.float32 and sums_fit_float32(maximum, rows.shape[1])
    return Slices(_squares(rows, in_float32), maximum, rows.shape[1], by_slice)


def _rows(tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """Return the slices as rows of a matrix, and whether slices are judged one by one."""
    by_slice = tensor.dim() >= 2 and tensor.numel() > tensor.shape[0]
    return tensor.reshape(tensor.shape[0], -1) if by_slice else tensor.reshape(1, -1), by_slice


def _maxima(rows: torch.Tensor) -> torch.Tensor:
    """Return the largest magnitude in each row; NaN if the row has one."""
    if rows.is_cuda:
        found: torch.Tensor = torch.linalg.vector_norm(rows, ord=math.inf, dim=1)  # without a copy
        return found
    # On the CPU that takes three to seven times as long as this.
    pieces = torch.split(rows, max(1, PIECE // rows.shape[0]), dim=1)
    return torch.stack([piece.abs().amax(dim=1) for piece in pieces]).amax(dim=0)


def _squares(rows: torch.Tensor, in_float32: bool = False) -> torch.Tensor:
    """Return the sum of squares over each row, on the CPU."""
    dtype = torch.float32 if in_float32 else torch.float64
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=dtype)
    return norms.to(torch.float64).square().cpu()


def sums_fit_float32(maximum: torch.Tensor, elements: int) -> bool:
    """Return whether float32 holds sums of squares well enough, which saves a float64 copy.

    A GPU adds in a tree, so only the range of the numbers matters. Squares below 1e-38 are lost. If
    the largest square is at least ``elements`` * 1e-32, all lost ones together are less than 1e-6
    of it.

    Args:
        maximum: Largest magnitude in each slice.
        elements: Number of elements in a slice.
    """
    least, most = 1e-16 * math.sqrt(elements), 1e18 / math.sqrt(elements)
    return bool(((maximum == 0) | ((maximum >= least) & (maximum <= most))).all())


def relative(error: Slices, scale: Slices) -> Errors:
    """Divide errors by their scale; infinite where the scale is zero and the error is not."""
    whole_l2 = _ratio(error.rms, scale.rms)
    whole_maximum = _ratio(float(error.maximum.max()), scale.rms)
    if not error.by_slice:
        return Errors(whole_l2, whole_maximum, 0.0, 0.0)
    slice_rms = scale.own_or_whole
    return Errors(
        whole_l2,
        whole_maximum,
        _worst_ratio(error.slice_rms, slice_rms),
        _worst_ratio(error.maximum, slice_rms),
    )


@dataclass(frozen=True)
class TensorVerdict:
    """The errors of one tensor and the budgets that they had to meet.

    Attributes:
        ok: Whether all four errors are within their budgets.
        share: The largest error over its budget; above 1 fails.
        l2_error, l2_budget: The L2 pair (whole or slice) with the larger share.
        max_error, max_budget: The same for the maximum norm.
    """

    ok: bool
    share: float
    l2_error: float
    l2_budget: float
    max_error: float
    max_budget: float


def judge(errors: Errors, eager: Errors, floor: LeastBudget, slice_floor: LeastBudget | None = None) -> TensorVerdict:
    """Compare errors with ``max(factor * eager's error, floor)`` in each norm, whole and by slice.

    Args:
        errors: The errors to judge.
        eager: Eager's errors.
        floor: The least budget.
        slice_floor: The least budget of slices, if it differs.
    """
    of_slices = slice_floor or floor
    l2 = _tightest((errors.l2, eager.l2), (errors.slice_l2, eager.slice_l2), L2_FACTOR, (floor.l2, of_slices.l2))
    maximum = _tightest(
        (errors.maximum, eager.maximum),
        (errors.slice_maximum, eager.slice_maximum),
        MAX_FACTOR,
        (floor.maximum, of_slices.maximum),
    )
    ok = l2.error <= l2.budget and maximum.error <= maximum.budget
    return TensorVerdict(
        ok,
        share=_larger(l2.share, maximum.share),
        l2_error=l2.error,
        l2_budget=l2.budget,
        max_error=maximum.error,
        max_budget=maximum.budget,
    )


class _Pair(NamedTuple):
    error: float
    budget: float
    share: float


def _tightest(
    whole: tuple[float, float], by_slice: tuple[float, float], factor: float, floors: tuple[float, float]
) -> _Pair:
    pairs = []
    for (error, eager_error), floor in zip((whole, by_slice), floors, strict=True):
        budget = _budget(factor, eager_error, floor)
        pairs.append(_Pair(error, budget, error / budget if math.isfinite(error) else math.inf))
    return pairs[0] if pairs[0].share >= pairs[1].share else pairs[1]


class Allowance(NamedTuple):
    """The error that the budgets allow one element, by slice.

    Values are absolute, in the tensor's own unit, float64 of shape (n,).

    Attributes:
        maximum: The largest error that the maximum norm allows.
        l2: The error that the L2 norm would allow if all of a slice's elements had it.
    """

    maximum: torch.Tensor
    l2: torch.Tensor


def allowed(scale: Slices, eager: Errors, floor: LeastBudget, slice_floor: LeastBudget | None = None) -> Allowance:
    """Return the error that ``judge`` allows one element under the same budgets.

    Args:
        scale: The reference's own sums.
        eager: Eager's errors.
        floor: The least budget.
        slice_floor: The least budget of slices, if it differs.
    """
    of_slices = slice_floor or floor
    slice_rms = scale.own_or_whole

    def one(factor: float, whole: tuple[float, float], by_slice: tuple[float, float]) -> torch.Tensor:
        limit = torch.full_like(slice_rms, _budget(factor, *whole) * scale.rms)
        return torch.minimum(limit, _budget(factor, *by_slice) * slice_rms) if scale.by_slice else limit

    return Allowance(
        one(MAX_FACTOR, (eager.maximum, floor.maximum), (eager.slice_maximum, of_slices.maximum)),
        one(L2_FACTOR, (eager.l2, floor.l2), (eager.slice_l2, of_slices.l2)),
    )


def _budget(factor: float, eager_error: float, floor: float) -> float:
    # If eager itself is not finite it gives no budget, and the floor applies.
    return max(factor * eager_error, floor) if math.isfinite(eager_error) else floor


def _ratio(error: float, scale: float) -> float:
    if error == 0:
        return 0.0
    return error / scale if scale > 0 else math.inf


def _worst_ratio(errors: torch.Tensor, scales: torch.Tensor) -> float:
    ratios = torch.where(errors > 0, errors / scales, torch.zeros_like(errors))
    return float(ratios.max())


def _larger(first: float, second: float) -> float:
    return math.nan if math.isnan(first) or math.isnan(second) else max(first, second)

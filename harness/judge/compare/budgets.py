"""Computes the budgets of a tensor's errors from its gauges, and judges the errors by them."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import torch

from harness.judge.reference.equivalence import (
    FLOORS,
    MAX_FACTOR,
    NO_ERROR,
    NUDGED_FACTOR,
    RELAXED,
    Allowance,
    Errors,
    LeastBudget,
    Slices,
    allowed,
    beyond,
    judge,
    relative,
)
from harness.judge.reference.kinks import explained_by
from harness.judge.reference.reduced_precision import mantissa_bits, operands_floors
from harness.judge.reference.reference_errors import Gauge, Parts, scale_under
from harness.records.record import PrecisionClass, TensorReport

#: The judge examines a piece whose errors reach this share of the budget. It is below 1 because the
#: budget of the whole tensor may be a little tighter than that of the piece.
WORTH_A_LOOK = 0.5


class TensorGauges:
    """The magnitude of one tensor, and the errors of the reference's other evaluations of it.

    Args:
        gauges: Gauges by the cotangent's name, "" for an output.
        name: The tensor's name.

    Attributes:
        explained: What branch flips at kinks change, by cotangent. Empty where there are no kinks.
        eager: Deviations of the eager runs by cotangent, less what flips change. Flips must not
            widen the budget eightfold.
    """

    def __init__(self, gauges: Mapping[str, Gauge], name: str):
        self._gauges = {cotangent: gauge for cotangent, gauge in gauges.items() if name in gauge.scale}
        self._name = name
        self._scales = {cotangent: gauge.scale[name] for cotangent, gauge in self._gauges.items()}
        moved = {cotangent: gauge.of("moved", name) for cotangent, gauge in self._gauges.items()}
        self.explained = {cotangent: explained_by(runs) for cotangent, runs in moved.items() if runs}
        self.eager = {
            cotangent: [
                unexplained(run, self.explained.get(cotangent), left)
                for run, left in itertools.zip_longest(runs, gauge.of("eager left", name))
            ]
            for cotangent, gauge in self._gauges.items()
            if (runs := gauge.of("eager", name))
        }

    def scale(self, cotangent: str) -> Slices:
        """Return what errors under a cotangent are divided by."""
        return scale_under(cotangent, self._scales)

    @functools.cached_property
    def yardstick(self) -> Errors:
        """Eager's errors, of which the budget is a multiple."""
        return _yardstick([(runs, self.scale(cotangent)) for cotangent, runs in self.eager.items()])

    def effects(self, cotangent: str) -> list[Errors]:
        """Return what rounding the operands of products changes; empty in the class fp32."""
        # A run that overflows counts as no error, as an eager run does: it must not widen the
        # budget.
        gauge = self._gauges.get(cotangent)
        runs = [] if gauge is None else gauge.of("rounded", self._name)
        return [finite_only(relative(run, self.scale(cotangent))) for run in runs]


class Budgets:
    """The budgets of one precision class.

    Args:
        precision: The precision class.
        is_relaxed: Whether no budget is below the tolerances of ``--precision relaxed``.
    """

    def __init__(self, precision: PrecisionClass, is_relaxed: bool):
        self._precision = precision
        self._is_relaxed = is_relaxed
        self._bits = mantissa_bits(precision)

    def floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[LeastBudget, LeastBudget]:
        """Return the least budgets of a whole tensor and of its slices.

        They come from the precision class, or from what rounding the operands of products changes.
        """
        whole, by_slice = self._strict_floors(dtype, effects)
        if self._is_relaxed:
            accepted = RELAXED[self._precision]
            return LeastBudget(*map(max, whole, accepted)), LeastBudget(*map(max, by_slice, accepted))
        return whole, by_slice

    def _strict_floors(self, dtype: str, effects: Sequence[Errors]) -> tuple[LeastBudget, LeastBudget]:
        of_class = FLOORS[self._precision]
        if self._bits is None:
            return of_class, of_class
        whole, by_slice = operands_floors(effects)
        if dtype in ("float32", "float64"):
            return whole, by_slice
        # Storing a tensor of few bits rounds it once more.
        return LeastBudget(*map(max, of_class, whole)), LeastBudget(*map(max, of_class, by_slice))

    def bound_of_zero(self, eager: Collection[Parts]) -> float:
        """Return the largest allowed error of a gradient that is zero."""
        # A zero gradient gives no scale. Cotangents are of the order of one, so the floor of the
        # maximum norm serves as an absolute bound.
        straight = max((_largest(first) for first, *_ in eager), default=0.0)
        nudged = max((_largest(part) for _, *others in eager for part in others), default=0.0)
        theirs = max(straight, min(nudged, NUDGED_FACTOR * straight))
        least = (RELAXED if self._is_relaxed else FLOORS)[self._precision].maximum
        return max(MAX_FACTOR * theirs, least)

    def allowance(
        self,
        dtype: str,
        cotangent: str,
        error: Slices,
        scale: Slices,
        gauges: Callable[[], TensorGauges],
        *,
        with_flips: bool = True,
    ) -> Allowance | None:
        """Return what the budgets allow each element of a piece; None where it is well within them.

        Args:
            dtype: The tensor's dtype.
            cotangent: The cotangent's name, "" for an output.
            error: The candidate's deviation in the piece.
            scale: The exact tensor's magnitude in the piece.
            gauges: Returns the tensor's gauges in the piece, where the least budgets do not suffice.
            with_flips: Whether flips at kinks may explain a part of the error.
        """
        if not is_floating(dtype):
            equal = torch.zeros_like(error.maximum)
            return Allowance(equal, equal) if bool((error.maximum > 0).any()) else None
        least = self.floors("float32", [])
        if judge(relative(error, scale), NO_ERROR, *least).ok:
            return None
        measured = gauges()
        flips = measured.explained.get(cotangent) if with_flips else None
        if scale.rms == 0 and cotangent:
            bound = torch.full_like(error.maximum, self.bound_of_zero(measured.eager.values()))
            return Allowance(bound, bound) if float(error.maximum.max()) > float(bound[0]) else None
        floors = self.floors(dtype, measured.effects(cotangent))
        yardstick = measured.yardstick
        if judge(relative(unexplained(error, flips), scale), yardstick, *floors).share <= WORTH_A_LOOK:
            return None
        allowance = allowed(scale, yardstick, *floors)
        if flips is None:
            return allowance
        return Allowance(allowance.maximum + _known(flips.maximum), allowance.l2 + _known(flips.slice_rms))

    def judged(self, blank: TensorReport, error: Slices, scale: Slices, gauges: TensorGauges) -> TensorReport:
        """Judge a tensor under one cotangent; return the report with the verdict.

        Args:
            blank: The report, which has the tensor's name, dtype and cotangent.
            error: The candidate's deviation, less what flips at kinks explain.
            scale: The exact tensor's magnitude.
            gauges: The tensor's gauges.
        """
        largest = float(error.maximum.max())
        if scale.rms == 0 and blank.cotangent:
            note = "the reference's gradient is zero for every cotangent, so this comparison tests little"
            return replace(blank, ok=largest <= self.bound_of_zero(gauges.eager.values()), note=note)
        if not is_floating(blank.dtype):
            return replace(blank, ok=largest == 0, note="" if largest == 0 else "differs; it must be equal")
        floors = self.floors(blank.dtype, gauges.effects(blank.cotangent or ""))
        verdict = judge(relative(error, scale), gauges.yardstick, *floors)
        return replace(
            blank,
            ok=verdict.ok,
            l2_error=verdict.l2_error,
            l2_budget=verdict.l2_budget,
            max_error=verdict.max_error,
            max_budget=verdict.max_budget,
            share=math.inf if math.isnan(verdict.share) else verdict.share,
        )


def unexplained(error: Slices, flips: Slices | None, left: Slices | None = None) -> Slices:
    """Return the error less what flips at kinks may change.

    Args:
        error: The error.
        flips: What flips change in a slice; None where there are none.
        left: What is left of the error if flips excuse each element alone. That much always counts.
    """
    if flips is None:
        return error
    rest = beyond(error, flips)
    return rest if left is None else rest.larger(left)


def is_floating(dtype: str) -> bool:
    """Return whether a dtype, given by name, is floating."""
    return bool(getattr(torch, dtype).is_floating_point)


def finite_only(errors: Errors) -> Errors:
    """Replace errors that are not finite by 0: an overflow in eager must not widen a budget."""
    return Errors(*(value if math.isfinite(value) else 0.0 for value in errors))


def _yardstick(eager: Sequence[tuple[Parts, Slices]]) -> Errors:
    """Return eager's largest errors over cotangents and runs; the first run of each uses unchanged inputs."""
    straight = nudged = NO_ERROR
    for (first, *others), scale in eager:
        straight = straight.worst(finite_only(relative(first, scale)))
        for part in others:
            nudged = nudged.worst(finite_only(relative(part, scale)))
    return straight.worst(nudged.at_most(NUDGED_FACTOR, straight))


def _largest(error: Slices) -> float:
    """Return the largest deviation, or 0 where it is not finite: that must not widen a budget."""
    largest = float(error.maximum.max())
    return largest if math.isfinite(largest) else 0.0


def _known(sums: torch.Tensor) -> torch.Tensor:
    return torch.where(sums.isfinite(), sums, 0.0)

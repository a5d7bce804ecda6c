"""What a lower precision class is allowed: to round the operands of products, and nothing else.

A problem of class 10-bit (TF32) or 7-bit (bf16) lets a candidate round what it multiplies, to the nearest or by cutting
bits off, as tensor cores do. What that changes is measured, in float64, and is the floor of the budget. In some trials
inputs and parameters are cut to that many bits beforehand: rounding them again changes nothing, and an error of another
origin has nowhere to hide. See docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from harness.aten.dispatching import DispatchMode
from harness.judge.inputs.draws import Draw
from harness.judge.reference.equivalence import Errors, LeastBudget
from harness.records.record import PrecisionClass

#: Trials, counted from 0, in which inputs and parameters are cut.
CUT_TRIALS = frozenset({1, 3})

#: The least budget where no rounding of operands shows: four times that of fp32, since the accumulators of tensor cores
#: lose bits of their own (three products of a split reach 1e-5 at 8192 terms).
ACCUMULATION = LeastBudget(128 * 2.0**-23, 1024 * 2.0**-23)

#: How many times the measured effect is allowed. What is rounded to the nearest differs from kernel to kernel as chance
#: has it; cutting errs in one direction, so that its effect hardly varies. The next lower class errs 8 times as much as
#: the one, and 4 times as much as the other.
NEAREST_FACTOR = LeastBudget(4.0, 8.0)
CUTTING_FACTOR = LeastBudget(2.0, 4.0)
#: The ways of rounding that are measured: to the nearest or not, with the factors.
WAYS = ((True, NEAREST_FACTOR), (False, CUTTING_FACTOR))

_MANTISSA_BITS = {PrecisionClass.TEN_BIT: 10, PrecisionClass.SEVEN_BIT: 7}


class _Layout(NamedTuple):
    """A floating dtype: the integers of its size, and the bits of its mantissa."""

    integers: torch.dtype
    mantissa: int


_LAYOUTS = {
    torch.float64: _Layout(torch.int64, 52),
    torch.float32: _Layout(torch.int32, 23),
    torch.float16: _Layout(torch.int16, 10),
    torch.bfloat16: _Layout(torch.int16, 7),
}

#: Products, with the places of their operands among the arguments.
_PRODUCTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "linear", "matmul"), (0, 1)),
    **dict.fromkeys(("addmm", "addmv", "addbmm", "baddbmm", "addr", "_addmm_activation"), (1, 2)),
    **dict.fromkeys(("convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_transpose"), (0, 1)),
    "convolution_overrideable": (0, 1),
    "convolution_backward": (0, 1, 2),
    "convolution_backward_overrideable": (0, 1, 2),
}


def mantissa_bits(precision: PrecisionClass) -> int | None:
    """The bits that operands keep in a class, the implicit one not counted; None for fp32, which rounds nothing."""
    return _MANTISSA_BITS.get(precision)


def cut(draw: Draw, bits: int) -> Draw:
    """The draw with inputs and parameters cut to so many bits, towards zero.

    Args:
        draw: The draw; its model is changed in place.
        bits: Mantissa bits that are kept.
    """
    with torch.no_grad():
        for parameter in draw.model.parameters():
            if parameter.dtype in _LAYOUTS:
                parameter.copy_(_shortened(parameter, bits, to_nearest=False))
    return replace(draw, inputs=cut_inputs(draw.inputs, bits), bits=bits)


def cut_inputs(inputs: Sequence[Any], bits: int) -> list[Any]:
    """The floating tensors among inputs, cut to so many bits."""
    return [
        _shortened(value, bits, to_nearest=False)
        if isinstance(value, torch.Tensor) and value.dtype in _LAYOUTS
        else value
        for value in inputs
    ]


def operands_floors(effects: Sequence[Errors]) -> tuple[LeastBudget, LeastBudget]:
    """The least budgets of a tensor: of the whole, and of its slices.

    Args:
        effects: What rounding the operands of products changes in it, by each of ``WAYS``; none for nothing. Finite.
    """
    whole = by_slice = LeastBudget(0.0, 0.0)
    for effect, (_, factor) in zip(effects, WAYS, strict=bool(effects)):
        allowed = LeastBudget(factor.l2 * effect.l2, factor.maximum * effect.maximum)
        of_slices = LeastBudget(factor.l2 * effect.slice_l2, factor.maximum * effect.slice_maximum)
        whole, by_slice = LeastBudget(*map(max, whole, allowed)), LeastBudget(*map(max, by_slice, of_slices))
    return _with_accumulation(whole), _with_accumulation(by_slice)


def _with_accumulation(floor: LeastBudget) -> LeastBudget:
    return LeastBudget(ACCUMULATION.l2 + floor.l2, ACCUMULATION.maximum + floor.maximum)


class Rounding(DispatchMode):  # type: ignore[no-untyped-call]
    """A block in which every product rounds its operands.

    Args:
        bits: Mantissa bits that they keep.
        to_nearest: Whether to the nearest; else what is too much is cut off.
    """

    def __init__(self, bits: int, to_nearest: bool):
        super().__init__()
        self._bits = bits
        self._to_nearest = to_nearest

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        space, _, name = func._schema.name.partition("::")
        places = _PRODUCTS.get(name.rstrip("_"), ()) if space == "aten" else ()
        rounded = [
            _shortened(value, self._bits, self._to_nearest)
            if place in places and isinstance(value, torch.Tensor) and value.dtype in _LAYOUTS
            else value
            for place, value in enumerate(args)
        ]
        result = func(*rounded, **(kwargs or {}))
        if name.startswith("convolution_backward") and result[2] is not None:
            # The bias's gradient comes along, and is a sum, not a product.
            summed = args[0].sum([dim for dim in range(args[0].dim()) if dim != 1])
            result = (*result[:2], summed)
        return result


def _shortened(values: torch.Tensor, bits: int, to_nearest: bool) -> torch.Tensor:
    """Values with so many mantissa bits, or as they are where they have no more; NaN and infinities stay."""
    layout = _LAYOUTS[values.dtype]
    surplus = layout.mantissa - bits
    if surplus <= 0:
        return values
    whole = values.detach().contiguous().view(layout.integers)
    if to_nearest:  # a carry into the exponent is the next power of two, as it should be
        whole = whole + (1 << (surplus - 1))
    kept = (whole & -(1 << surplus)).view(values.dtype)
    return torch.where(values.isfinite(), kept, values)

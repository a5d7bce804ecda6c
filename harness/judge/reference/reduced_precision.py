"""Measures what a lower precision class allows: rounded operands of products, nothing else.

In the classes 10-bit (TF32) and 7-bit (bf16) a candidate may round what it multiplies. It may round
to the nearest or cut bits off, as tensor cores do. The judge measures in float64 what such rounding
changes; that is the floor of the budget.

In some trials the judge cuts inputs and parameters to that many bits beforehand. Rounding them
again changes nothing, so an error of another origin shows. See docs/numerics.md.
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

#: Trials, counted from 0, in which the judge cuts inputs and parameters.
CUT_TRIALS = frozenset({1, 3})

#: The least budget where rounding operands changes nothing: four times that of fp32. The
#: accumulators of tensor cores lose bits of their own: three products of a split reach 1e-5 at 8192
#: terms.
ACCUMULATION = LeastBudget(128 * 2.0**-23, 1024 * 2.0**-23)

#: Multiples of the measured change that the budget allows. Chance decides what rounding to the
#: nearest changes, and kernels differ. Cutting errs in one direction, so its effect hardly varies.
#: The next lower class changes 8 times what rounding to the nearest changes here, and 4 times what
#: cutting changes: more than allowed.
NEAREST_FACTOR = LeastBudget(4.0, 8.0)
CUTTING_FACTOR = LeastBudget(2.0, 4.0)
#: The measured ways of rounding: whether to the nearest, and the factors.
WAYS = ((True, NEAREST_FACTOR), (False, CUTTING_FACTOR))

_MANTISSA_BITS = {PrecisionClass.TEN_BIT: 10, PrecisionClass.SEVEN_BIT: 7}


class _Layout(NamedTuple):
    """The bit layout of a floating dtype: the integer dtype of its size, and its mantissa bits."""

    integers: torch.dtype
    mantissa: int


_LAYOUTS = {
    torch.float64: _Layout(torch.int64, 52),
    torch.float32: _Layout(torch.int32, 23),
    torch.float16: _Layout(torch.int16, 10),
    torch.bfloat16: _Layout(torch.int16, 7),
}

#: Operators that multiply, with the positions of their operands among the arguments.
_PRODUCTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "linear", "matmul"), (0, 1)),
    **dict.fromkeys(("addmm", "addmv", "addbmm", "baddbmm", "addr", "_addmm_activation"), (1, 2)),
    **dict.fromkeys(("convolution", "_convolution", "cudnn_convolution", "cudnn_convolution_transpose"), (0, 1)),
    "convolution_overrideable": (0, 1),
    "convolution_backward": (0, 1, 2),
    "convolution_backward_overrideable": (0, 1, 2),
}


def is_product(name: str) -> bool:
    """Return whether an operator of torch's multiplies, by its name in the schema."""
    return name.rstrip("_") in _PRODUCTS


def mantissa_bits(precision: PrecisionClass) -> int | None:
    """Return the explicit mantissa bits that operands keep in a class; None for fp32."""
    return _MANTISSA_BITS.get(precision)


def cut(draw: Draw, bits: int) -> Draw:
    """Cut a draw's inputs and parameters to ``bits`` mantissa bits, towards zero.

    Args:
        draw: The draw. Its model changes in place.
        bits: Number of mantissa bits to keep.
    """
    with torch.no_grad():
        for parameter in draw.model.parameters():
            if parameter.dtype in _LAYOUTS:
                parameter.copy_(_shortened(parameter, bits, to_nearest=False))
    return replace(draw, inputs=cut_inputs(draw.inputs, bits), bits=bits)


def cut_inputs(inputs: Sequence[Any], bits: int) -> list[Any]:
    """Cut the floating tensors among the inputs to ``bits`` mantissa bits."""
    return [
        _shortened(value, bits, to_nearest=False)
        if isinstance(value, torch.Tensor) and value.dtype in _LAYOUTS
        else value
        for value in inputs
    ]


def operands_floors(effects: Sequence[Errors]) -> tuple[LeastBudget, LeastBudget]:
    """Return the least budgets of a tensor: of the whole, and of its slices.

    Args:
        effects: Finite errors from rounding the operands of products, one for each of ``WAYS``.
            Empty where nothing was measured.
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
    """Rounds the operands of every product within a ``with`` block.

    Args:
        bits: Number of mantissa bits that operands keep.
        to_nearest: Whether to round to the nearest; else surplus bits are cut off.
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
            # The same operator computes the bias's gradient, which is a sum and not a product.
            summed = args[0].sum([dim for dim in range(args[0].dim()) if dim != 1])
            result = (*result[:2], summed)
        return result


def _shortened(values: torch.Tensor, bits: int, to_nearest: bool) -> torch.Tensor:
    """Reduce values to ``bits`` mantissa bits; NaN, infinities and shorter mantissas stay."""
    layout = _LAYOUTS[values.dtype]
    surplus = layout.mantissa - bits
    if surplus <= 0:
        return values
    whole = values.detach().contiguous().view(layout.integers)
    if to_nearest:  # A carry into the exponent correctly gives the next power of two.
        whole = whole + (1 << (surplus - 1))
    kept = (whole & -(1 << surplus)).view(values.dtype)
    return torch.where(values.isfinite(), kept, values)

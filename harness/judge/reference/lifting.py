"""Keeps a reference's float64 run in float64 where its code asks for a lower precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.aten.dispatching import DispatchMode

#: What stands for a dtype in float64. Floats of 8 bits are missing: a cast to them is a quantisation that is meant.
_LIFTED = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: Operators whose results jump where their floating operands hardly change. What rounding decides there must stay
#: decided as the code says. In-place forms have a further ``_``.
_DECIDING = frozenset(
    (
        *("round", "floor", "ceil", "trunc", "frac", "sign", "sgn", "fmod", "remainder", "floor_divide"),
        *("gt", "ge", "lt", "le", "eq", "ne", "isclose", "equal", "signbit", "heaviside", "nonzero", "count_nonzero"),
        *("argmax", "argmin", "argsort", "sort", "topk", "kthvalue", "median", "nanmedian", "mode"),
        *("bucketize", "searchsorted", "histc", "unique2", "_unique2", "_local_scalar_dense"),
    )
)
#: Rounding changes an output by less than this share of its norm.
MOST_ROUNDED = 0.05


class Lifting(DispatchMode):  # type: ignore[no-untyped-call]
    """Makes casts to a lower precision, and tensors created in one, float64 within a ``with`` block.

    A forward that says ``x.to(torch.bfloat16)`` rounds there by its own choice. Eager's distance
    from a run without that rounding tells how much of it is allowed.

    Attributes:
        has_changed: Whether there was anything to change.
        has_decided: Whether floating numbers have decided something, as a comparison does, or a cast to integers.
        reads_bits: Whether float64 numbers were read as the bits of float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_changed = self.has_decided = self.reads_bits = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.view.dtype:
            return self._bits(*args)
        named: dict[str, Any] = dict(kwargs or {})
        wanted = named.get("dtype")
        if wanted is not None and (lifted := _LIFTED.get(wanted)) is not None:
            named["dtype"] = lifted
            self.has_changed = True
        name = func._schema.name.partition("::")[2].removesuffix("_")
        is_whole = wanted is not None and not wanted.is_floating_point and not wanted.is_complex
        if name in _DECIDING or (name == "_to_copy" and is_whole) or wanted in (torch.float8_e4m3fn, torch.float8_e5m2):
            self.has_decided |= any(isinstance(one, torch.Tensor) and one.is_floating_point() for one in args)
        result = func(*args, **named)
        if func is torch.ops.aten.lift_fresh.default and (lifted := _LIFTED.get(result.dtype)) is not None:
            self.has_changed = True
            return result.to(lifted)  # torch.tensor(..., dtype=torch.float32)
        return result

    def _bits(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Read or write bits: those of float32 where float64 stands for it."""
        is_whole = not dtype.is_floating_point and not dtype.is_complex
        if tensor.dtype is torch.float64 and is_whole and dtype.itemsize == torch.float32.itemsize:
            self.has_changed = self.has_decided = self.reads_bits = True
            return tensor.to(torch.float32).view(dtype)
        if dtype is torch.float32:
            self.has_changed = True
            return tensor if tensor.dtype is torch.float64 else tensor.view(dtype).to(torch.float64)
        return tensor.view(dtype)


def is_rounded(exact: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> bool:
    """Return whether eager's outputs differ from exact ones by rounding at most."""

    def is_near(right: torch.Tensor, rounded: torch.Tensor) -> bool:
        if right.shape != rounded.shape:
            return False
        if not right.is_floating_point():
            return torch.equal(right, rounded)
        wide = rounded.to(right.dtype)
        return bool(torch.linalg.vector_norm(wide - right) <= MOST_ROUNDED * torch.linalg.vector_norm(right))

    return len(exact) == len(eager) and all(map(is_near, exact, eager))

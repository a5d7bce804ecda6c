"""Keeps a reference's float64 run in float64 where its code asks for a lower precision."""

from __future__ import annotations

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


class Lifting(DispatchMode):  # type: ignore[no-untyped-call]
    """Makes casts to a lower precision, and tensors created in one, float64 within a ``with`` block.

    A forward that says ``x.to(torch.bfloat16)`` rounds there by its own choice. Eager's distance
    from a run without that rounding tells how much of it is allowed.

    Attributes:
        has_changed: Whether there was anything to change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.has_changed = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named: dict[str, Any] = dict(kwargs or {})
        if (lifted := _LIFTED.get(named.get("dtype", torch.float64))) is not None:
            named["dtype"] = lifted
            self.has_changed = True
        result = func(*args, **named)
        if func is torch.ops.aten.lift_fresh.default and (lifted := _LIFTED.get(result.dtype)) is not None:
            self.has_changed = True
            return result.to(lifted)  # torch.tensor(..., dtype=torch.float32)
        return result

"""Decides whether TF32 is within a problem's precision class, by its operators and torch's flags.

On a GPU eager PyTorch may run a float32 product in TF32 where torch's flags allow it. Whether it
does is up to heuristics of cuDNN and cuBLAS, by shape and version. So the rule looks at the flags:
if they allow TF32 for an operator that the problem uses, the case is judged in the class 10-bit.
See docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from harness.aten.dispatching import DispatchMode
from harness.aten.torch_state import CONVOLUTION, MATMUL, tf32_allowed
from harness.judge.reference.reduced_precision import CUT_TRIALS, is_product
from harness.records.record import PrecisionClass, TensorReport
from harness.records.run_config import ALLOW

#: Eager ran in TF32 if its error is above this share of what rounding operands changes. In TF32 the
#: two are alike, in float32 eager's is a thousandth of it.
TELLING_SHARE = 1 / 8
_ATTENTION = "_scaled_dot_product"


class Products(DispatchMode):  # type: ignore[no-untyped-call]
    """Collects which kinds of products a ``with`` block computes of float32 operands.

    Attributes:
        found: ``matmul``, ``convolution``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        space, _, name = func._schema.name.partition("::")
        is_float32 = any(isinstance(value, torch.Tensor) and value.dtype is torch.float32 for value in args)
        if space == "aten" and is_float32 and (is_product(name) or name.startswith(_ATTENTION)):
            self.found.add(CONVOLUTION if "convolution" in name else MATMUL)
        return func(*args, **(kwargs or {}))


def allowed_on(device: torch.device, choice: str) -> frozenset[str]:
    """Returns the kinds of products for which TF32 is allowed.

    Args:
        device: The device. A CPU has no TF32, so only the user's choice allows it there.
        choice: ``allow``, ``forbid`` or empty (see ``RunConfig``). It has been written to torch's
            flags.
    """
    if device.type == "cuda":
        return tf32_allowed()
    return frozenset({MATMUL, CONVOLUTION}) if choice == ALLOW else frozenset()


def judged_class(declared: PrecisionClass, products: Iterable[str], allowed: frozenset[str]) -> PrecisionClass:
    """Returns the precision class in which a case is judged.

    Args:
        declared: The problem's own class.
        products: The kinds of products of float32 operands that the reference computes.
        allowed: The kinds for which TF32 is allowed.
    """
    is_within = declared is PrecisionClass.FP32 and not allowed.isdisjoint(products)
    return PrecisionClass.TEN_BIT if is_within else declared


def class_of_eager(reports: Iterable[TensorReport]) -> PrecisionClass | None:
    """Returns the class in which eager ran, by its error; None if the reports do not tell.

    Args:
        reports: Reports on outputs in the class 10-bit. Those of trials with cut inputs do not
            tell, since rounding changes nothing there.
    """
    told = [
        report.eager_error > TELLING_SHARE * report.rounding
        for report in reports
        if report.trial not in CUT_TRIALS and report.rounding and report.eager_error is not None
    ]
    if not told:
        return None
    return PrecisionClass.TEN_BIT if any(told) else PrecisionClass.FP32

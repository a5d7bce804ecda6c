"""Checks a case's values: inputs whose layout gets lost, and outputs without elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.wire.arena import order_of


def layouts_lost(inputs: Sequence[Any]) -> Iterator[str]:
    """Yield words for each input whose strides a candidate does not see."""
    for position, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and order_of(value) is None:
            yield (
                f"input {position} has strides {list(value.stride())}, with gaps or elements that share "
                "memory: a candidate gets a contiguous copy"
            )


def all_empty(outputs: Sequence[torch.Tensor]) -> str:
    """Return words if no output has an element; empty otherwise."""
    if any(output.numel() for output in outputs):
        return ""
    return "every output is empty: the case only tests that a candidate does not crash"

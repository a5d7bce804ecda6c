"""What `validate` has to say of a case's values: layouts that are not kept, and outputs in which there is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.wire.arena import order_of


def layouts_lost(inputs: Sequence[Any]) -> Iterator[str]:
    """Words for each input whose strides a candidate does not get to see."""
    for position, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and order_of(value) is None:
            yield (
                f"input {position} has strides {list(value.stride())}, with gaps or elements that share memory: a "
                "candidate gets it contiguous"
            )


def all_empty(outputs: Sequence[torch.Tensor]) -> str:
    """Words where no output has an element; empty where one has."""
    if any(output.numel() for output in outputs):
        return ""
    return "every output is empty: the case proves nothing but that a candidate survives it"

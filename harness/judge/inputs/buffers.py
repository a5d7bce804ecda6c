"""Buffers: which a forward of the reference changes, and states that only training leads to.

A constructor fills running statistics with zeros and ones, where a candidate that ignores them gets away with it. So in
all trials but the first the buffers begin where a forward in training has left them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.judge.exchange.exchange import same_bytes
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import Draw, seeded

#: What reports call a buffer, its name behind it.
PREFIX = "buffer "


def buffers_of(draw: Draw, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The persistent buffers of a model by name; those that are not are no part of the state, and not passed on."""
    kept = {tensor.name for tensor in draw.state if not tensor.is_parameter}
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def changed_buffers(draw: Draw, after: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Names of the buffers that are not what they were in the draw.

    Args:
        draw: The draw, as it was.
        after: Its buffers after a forward.
    """
    before = buffers_of(draw, draw.model)
    return frozenset(
        name
        for name, buffer in before.items()
        if name not in after or not (same_form(buffer, after[name]) and same_bytes(buffer, after[name]))
    )


def same_form(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors agree in shape and dtype."""
    return first.shape == second.shape and first.dtype == second.dtype


def warm(draw: Draw, inputs: Sequence[Any], seed: int) -> None:
    """Take a draw's buffers, in place, to where one forward in training leads them.

    Where the reference cannot run in training mode they stay as they are.

    Args:
        draw: The draw.
        inputs: Other inputs than the draw's own.
        seed: Seed of whatever the forward draws.
    """
    before = buffers_of(draw, draw.model)
    if not before:
        return
    model = copied(draw.model).train()
    with seeded(seed), torch.no_grad():
        try:
            model(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # the problem's code; that it runs in its own mode is tried elsewhere
            return
        after = buffers_of(draw, model)
        for name, buffer in before.items():
            if name in after and same_form(buffer, after[name]) and bool(torch.isfinite(after[name]).all()):
                buffer.copy_(after[name])

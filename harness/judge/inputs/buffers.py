"""Tracks the buffers that a reference's forward changes, and brings them to trained states.

A constructor fills running statistics with zeros and ones, which would hide a candidate that
ignores them. So in all trials but the first the buffers begin as a forward in training has left
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from harness.judge.exchange.exchange import same_bytes
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import Draw, seeded
from harness.wire.variations import is_finite

#: Prefix of a buffer's name in reports.
PREFIX = "buffer "


def buffers_of(draw: Draw, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a model's persistent buffers by name; other buffers are not part of the state."""
    kept = {tensor.name for tensor in draw.state if not tensor.is_parameter}
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def changed_buffers(draw: Draw, after: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Return the names of the buffers that differ from those of the draw.

    Args:
        draw: The draw, unchanged.
        after: The buffers after a forward.
    """
    before = buffers_of(draw, draw.model)
    return frozenset(
        name
        for name, buffer in before.items()
        if name not in after or not (same_form(buffer, after[name]) and same_bytes(buffer, after[name]))
    )


def same_form(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors agree in shape and dtype."""
    return first.shape == second.shape and first.dtype == second.dtype


def warm(draw: Draw, inputs: Sequence[Any], seed: int, steps: int = 1) -> None:
    """Set a draw's buffers, in place, to their values after forwards in training mode.

    They stay as they are if the reference cannot run in training mode.

    Args:
        draw: The draw.
        inputs: Other inputs than the draw's own.
        seed: Seed of the random numbers that the forwards draw.
        steps: Number of forwards. The first is the only one if it changes no buffer.
    """
    before = buffers_of(draw, draw.model)
    if not before:
        return
    model = copied(draw.model).train()
    with seeded(seed), torch.no_grad():
        try:
            model(*inputs)
            if steps > 1 and changed_buffers(draw, buffers_of(draw, model)):
                for _ in range(steps - 1):
                    model(*inputs)
        except torch.OutOfMemoryError:
            raise
        # The problem's code may raise; other checks test that it runs in its own mode.
        except Exception:
            return
        after = buffers_of(draw, model)
        for name, buffer in before.items():
            if name in after and same_form(buffer, after[name]) and is_finite(after[name]):
                buffer.copy_(after[name])

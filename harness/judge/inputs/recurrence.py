"""Recurrent layers on torch's meta device, where each step of a long sequence takes as long as any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: torch's functions of a padded sequence: input, state, weights, has_biases, layers, dropout, train,
#: bidirectional and batch_first.
_LAYERS = {"gru", "lstm", "rnn_relu", "rnn_tanh"}


class OneStep(TorchFunctionMode):
    """Runs a recurrent layer for the first step alone, and returns results with the shapes of all.

    Only for tensors without values. A packed sequence runs whole.

    Args:
        counted: Makes the context in which the one step stands for so many.
    """

    def __init__(self, counted: Callable[[int], contextlib.AbstractContextManager[None]] | None = None):
        super().__init__()
        self._counted = counted or _uncounted

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in _LAYERS or len(args) != 9 or not isinstance(args[2], list):
            return func(*args, **(kwargs or {}))
        sequence, *others = args
        axis = 1 if args[-1] else 0
        steps = sequence.shape[axis]
        if steps < 2:
            return func(*args)
        with self._counted(steps):
            first, *states = func(sequence.narrow(axis, 0, 1), *others)
        shape = list(first.shape)
        shape[axis] = steps
        return torch.empty(shape, dtype=first.dtype, device=first.device), *states


@contextlib.contextmanager
def _uncounted(steps: int) -> Iterator[None]:
    yield

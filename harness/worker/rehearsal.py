"""Calls a candidate on tensors without values, ahead of its turn, so that it builds its extensions.

Nothing of it is judged. Most solutions build when they are imported. Others build in ``ModelNew`` or
at the first forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.emulator.device import rehearsed_cuda
from harness.project import problems
from harness.wire.arena import dtype_name
from harness.wire.commands import Describe, Rehearse
from harness.wire.replies import Described
from harness.wire.tensors import Region, Value
from harness.wire.values import decode_plain, encode_plain
from harness.worker.solution_module import own_init_args


def described(command: Describe) -> Described:
    """Returns what a problem passes to a model; runs the problem's code."""
    problem = problems.read_problem(Path(command.problem))
    with rehearsed_cuda():
        module = problems.load(problem, decode_plain(command.constants))
        return Described(_values(module.get_init_inputs()), _values(module.get_inputs()))


def rehearse(module: ModuleType, command: Rehearse, has_built: Callable[[], bool]) -> None:
    """Makes an instance of ``ModelNew`` and, if the solution has built nothing then, calls it once.

    Args:
        module: The solution.
        command: The arguments.
        has_built: Returns whether a compiler has run for the solution.
    """
    with rehearsed_cuda():
        args = _arguments(command.init_args)
        if command.own_args:
            args = own_init_args(module, decode_plain(command.constants))
        model = module.ModelNew(*args).to("cuda")
        if not has_built():
            model(*_arguments(command.inputs))


def _values(given: Sequence[Any]) -> tuple[Value, ...]:
    return tuple(
        Value(Region(0, tuple(value.shape), dtype_name(value.dtype)), None)
        if isinstance(value, torch.Tensor)
        else Value(None, encode_plain(value))
        for value in given
    )


def _arguments(values: Sequence[Value]) -> list[Any]:
    return [
        decode_plain(value.plain or "null")
        if value.region is None
        else torch.empty(value.region.shape, dtype=getattr(torch, value.region.dtype), device="meta")
        for value in values
    ]

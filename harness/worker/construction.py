"""Constructs the candidate's instances under the seed that the judge uses for the reference."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from harness.wire.host_generators import host_states, seed_host, set_host_states
from harness.wire.state import CONSTRUCTION_SEED, constructed_there


def constructed(
    module: ModuleType, args: Sequence[Any], device: torch.device, is_reference: bool = False
) -> torch.nn.Module:
    """Constructs ``ModelNew`` under the seed under which the judge constructs ``Model``.

    The states of the random generators stay as they are.

    Args:
        module: The solution.
        args: The constructor's arguments.
        device: The device of the model.
        is_reference: Whether it is the problem's own model. The device then draws its parameters, as in the judge,
            unless it keeps tensors aside or cannot be constructed there.
    """
    host, used = host_states(), generators(device)
    states = [generator.get_state() for generator in used]
    try:
        _seed(used)
        model: torch.nn.Module | None = None
        if is_reference and device.type == "cuda":
            model = constructed_there(device, lambda: module.ModelNew(*copy.deepcopy(args)).to(device))
        if model is None:
            _seed(used)
            model = module.ModelNew(*args).to(device)
    finally:
        set_host_states(host)
        for generator, state in zip(used, states, strict=True):
            generator.set_state(state)
    return model


def _seed(used: Sequence[torch.Generator]) -> None:
    for generator in used:
        generator.manual_seed(CONSTRUCTION_SEED)
    seed_host(CONSTRUCTION_SEED)


def generators(device: torch.device) -> list[torch.Generator]:
    """Returns torch's default generators of the CPU and, if the device is one, of the GPU."""
    of_gpu = [torch.cuda.default_generators[device.index]] if device.type == "cuda" else []
    return [torch.default_generator, *of_gpu]

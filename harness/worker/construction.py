"""Constructs the candidate's instances under the seed that the judge uses for the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from harness.wire.state import CONSTRUCTION_SEED


def constructed(module: ModuleType, args: Sequence[Any], device: torch.device) -> torch.nn.Module:
    """Constructs ``ModelNew`` under the seed under which the judge constructs ``Model``.

    The states of the random generators stay as they are.
    """
    python_state, used = random.getstate(), generators(device)
    states = [generator.get_state() for generator in used]
    for generator in used:
        generator.manual_seed(CONSTRUCTION_SEED)
    random.seed(CONSTRUCTION_SEED)
    try:
        model: torch.nn.Module = module.ModelNew(*args).to(device)
    finally:
        random.setstate(python_state)
        for generator, state in zip(used, states, strict=True):
            generator.set_state(state)
    return model


def generators(device: torch.device) -> list[torch.Generator]:
    """Returns torch's default generators of the CPU and, if the device is one, of the GPU."""
    of_gpu = [torch.cuda.default_generators[device.index]] if device.type == "cuda" else []
    return [torch.default_generator, *of_gpu]

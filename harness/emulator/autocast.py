"""Makes autocast of CUDA that of the CPU, where the emulated device's tensors lie."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.amp.autocast_mode import autocast


def on_cpu(set_up: Callable[..., None]) -> Callable[..., None]:
    """Wraps ``autocast.__init__`` so that both types of device mean the CPU, with CUDA's default dtype."""

    @functools.wraps(set_up)
    def autocast_init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type in ("cuda", "cpu"):
            if dtype is None:
                dtype = torch.get_autocast_dtype("cpu" if torch.is_autocast_enabled("cpu") else "cuda")
            device_type = "cpu"
        set_up(self, device_type, dtype, *args, **kwargs)

    return autocast_init


def questions() -> dict[str, Callable[..., Any]]:
    """Returns what answers torch's questions about autocast of CUDA, by the names in ``torch``.

    ``custom_fwd`` and ``custom_bwd`` ask them, and functions that cast their inputs themselves.
    """
    is_enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype

    def place(device_type: str) -> str:
        return "cpu" if device_type == "cuda" and is_enabled("cpu") else device_type

    def is_autocast_enabled(device_type: str = "cuda") -> bool:
        return is_enabled(place(device_type))

    def get_autocast_dtype(device_type: str) -> torch.dtype:
        return dtype_of(place(device_type))

    def get_autocast_gpu_dtype() -> torch.dtype:
        return dtype_of(place("cuda"))

    found = (is_autocast_enabled, get_autocast_dtype, get_autocast_gpu_dtype)
    return {one.__name__: one for one in found}


def emulate() -> None:
    """Makes autocast in this process that of the emulated device, for references, which run on the CPU itself.

    A reference that asks for autocast of CUDA is then rounded as its candidates are.
    """
    autocast.__init__ = on_cpu(autocast.__init__)  # type: ignore[method-assign]

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


def emulate() -> None:
    """Makes autocast in this process that of the emulated device, for references, which run on the CPU itself.

    A reference that asks for autocast of CUDA is then rounded as its candidates are.
    """
    autocast.__init__ = on_cpu(autocast.__init__)  # type: ignore[method-assign]

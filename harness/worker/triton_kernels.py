"""Prepares Triton in the worker: interprets its kernels on the CPU, tells the judge of builds on a GPU.

Nothing here changes what a kernel computes. A candidate can undo all of it in its own process; the
judge knows from the solution's text that there are Triton kernels.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from harness.emulator import cuda_module

#: The functions by which the interpreter reads and writes memory, and the positions of their
#: pointers and mask.
_ACCESSES = {"load": (0, 1), "store": (0, 2), "atomic_rmw": (1, 3), "atomic_cas": (0, None)}


class _EmulatedDriver:
    """Stands in for Triton's driver, which a solution may ask about the device."""

    class utils:
        """The part of the driver that knows the device."""

        @staticmethod
        def get_device_properties(device: object = None) -> dict[str, int]:
            """Returns the emulated device's properties under Triton's names."""
            found = cuda_module.properties(device)
            return {
                "max_shared_mem": found.shared_memory_per_block_optin,
                "max_num_regs": found.regs_per_multiprocessor,
                "multiprocessor_count": found.multi_processor_count,
                "warpSize": found.warp_size,
                "sm_clock_rate": 1_000_000,
                "mem_clock_rate": 1_000_000,
                "mem_bus_width": 1024,
            }

    def get_current_device(self) -> int:
        """Returns the only device."""
        return 0

    def get_current_stream(self, device: object = None) -> int:
        """Returns the only stream."""
        return 0

    def get_current_target(self) -> Any:
        """Returns the emulated device's architecture in Triton's form."""
        major, minor = cuda_module.CAPABILITY
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 10 * major + minor, 32)

    def get_device_interface(self) -> ModuleType:
        """Returns ``torch.cuda``, which means the emulated device while a candidate runs."""
        return torch.cuda

    def get_active_torch_device(self) -> torch.device:
        """Returns the emulated device."""
        return torch.device("cuda", 0)


@dataclass
class Interpreted:
    """Counts the launches and accesses of Triton's interpreter.

    Attributes:
        launches: The number of launches by kernel.
        elements: The number of elements that kernels have loaded and stored.
    """

    launches: Counter[str] = field(default_factory=Counter)
    elements: int = 0

    def _launching(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(execute)
        def counted(grid: Any, *positional: Any, **named: Any) -> Any:
            self.launches[str(getattr(grid.fn, "__name__", "kernel"))] += 1
            return execute(grid, *positional, **named)

        return counted

    def _accessing(self, access: Callable[..., Any], pointers: int, mask: int | None) -> Callable[..., Any]:
        def counted(*positional: Any) -> Any:
            self.elements += positional[pointers].size
            if mask is None:
                return access(*positional)
            # Triton's ``&`` of a scalar and a block makes an integer mask, which its access refuses.
            return access(*positional[:mask], positional[mask].astype(bool), *positional[mask + 1 :])

        return counted

    @classmethod
    def from_now_on(cls) -> Interpreted:
        """Makes Triton's interpreter run all kernels. Call it before anything imports Triton.

        An autotuner then takes its first configuration, since the time of an interpreted kernel
        means nothing. The counts stay at zero without Triton.
        """
        found = cls()
        os.environ["TRITON_INTERPRET"] = "1"
        try:
            interpreter: Any = importlib.import_module("triton.runtime.interpreter")
            autotuner: Any = importlib.import_module("triton.runtime.autotuner")
            driver: Any = importlib.import_module("triton.runtime.driver")
        except ImportError:  # the solution's own import fails too, or has an alternative
            return found
        interpreter.GridExecutor.__call__ = found._launching(interpreter.GridExecutor.__call__)
        interpreter._implicit_cvt = _with_floats(interpreter)
        memory = dict(vars(interpreter._interpreter))
        memory.update({name: found._accessing(memory[name], *at) for name, at in _ACCESSES.items() if name in memory})
        interpreter._interpreter = SimpleNamespace(**memory)
        autotuner.Autotuner._bench = lambda self, *positional, **named: [0.0, 0.0, 0.0]
        driver.driver.set_active(_EmulatedDriver())
        return found


def _with_floats(interpreter: Any) -> Callable[[Any], Any]:
    """Makes a float argument what it is on a GPU: a value with a type, as the interpreter makes integers."""
    convert, single = interpreter._implicit_cvt, interpreter.tl.float32

    def converted(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        number = interpreter.np.array([argument], dtype=interpreter.np.float32)
        return interpreter.tl.tensor(interpreter.TensorHandle(number, single), single)

    return converted


class _Notes:
    """Tells of the outermost of nested builds.

    Args:
        on_build: Receives ``begin`` or ``end``, and a name.
    """

    def __init__(self, on_build: Callable[[str, str], None]):
        self._on_build = on_build
        self._depth = 0
        self._lock = threading.Lock()

    def noted(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function that builds."""

        @functools.wraps(build)
        def noting(*positional: Any, **named: Any) -> Any:
            self._enter(1)
            try:
                return build(*positional, **named)
            finally:
                self._enter(-1)

        return noting

    def _enter(self, step: int) -> None:
        with self._lock:
            before, self._depth = self._depth, self._depth + step
            if not (before and self._depth):
                self._on_build("begin" if self._depth else "end", "triton")


def note_builds(on_build: Callable[[str, str], None]) -> None:
    """Counts Triton's compilations and its autotuner's trial runs as building, not as running.

    Args:
        on_build: A callback around each. It receives ``"begin"`` or ``"end"``, and a name.
    """
    notes = _Notes(on_build)
    for place, name in (
        ("triton.compiler", "compile"),  # a kernel
        ("triton.runtime.build", "_build"),  # the C code that launches kernels
        ("triton.runtime.autotuner:Autotuner", "_bench"),  # one configuration
    ):
        module, _, owner = place.partition(":")
        try:
            holder: Any = importlib.import_module(module)
        except ImportError:  # the solution's own import fails too, or has an alternative
            return
        holder = getattr(holder, owner) if owner else holder
        if hasattr(holder, name):  # Triton's own names may change
            setattr(holder, name, notes.noted(getattr(holder, name)))

"""Detects what a candidate has changed in its process or left running there.

The module records the original functions when it is imported, which is before any candidate. A
candidate that knows this module can deceive it. So its findings are evidence, and the judge's own
clock does not depend on them.
"""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any, NamedTuple

import torch

from harness.aten.torch_state import FLAGS
from harness.wire import channel
from harness.worker import clock

#: Functions that tell time, wait for the device, compare or summarise. No kernel needs to replace
#: them.
_OWNERS: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    (
        "time",
        time,
        (
            *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
            *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
        ),
    ),
    ("statistics", statistics, ("mean", "fmean", "median", "median_low", "median_high", "quantiles", "stdev")),
    ("torch.cuda.Event", torch.cuda.Event, ("record", "elapsed_time", "synchronize", "query", "wait")),
    ("torch.cuda.Stream", torch.cuda.Stream, ("synchronize", "query", "wait_stream", "wait_event", "record_event")),
    ("torch.cuda", torch.cuda, ("Event", "synchronize", "_sleep", "current_stream", "default_stream")),
    ("torch", torch, ("allclose", "equal", "isclose")),
    ("torch.testing", torch.testing, ("assert_close",)),
    ("torch.Tensor", torch.Tensor, ("copy_", "equal", "allclose", "isclose", "data_ptr", "__eq__", "__ne__")),
    ("torch.autograd", torch.autograd, ("grad", "backward")),
    ("harness.worker.clock", clock, tuple(vars(clock))),
    ("harness.wire.channel", channel, ("send", "receive")),
)
_enumerate = threading.enumerate


class _Original(NamedTuple):
    owner: Any
    attribute: str
    value: Any


class Inspection:
    """Compares a process with its state when this object was made.

    Make the object before the candidate is imported.
    """

    def __init__(self) -> None:
        self._originals = {
            f"{name}.{attribute}": _Original(owner, attribute, getattr(owner, attribute))
            for name, owner, attributes in _OWNERS
            for attribute in attributes
            if not attribute.startswith("__") or attribute in ("__eq__", "__ne__")
        }
        self._threads = set(_enumerate())
        self._flags = self._read()
        self._before = dict(self._flags)
        self._left: dict[str, str] = {}

    def keep_flags(self) -> None:
        """Accepts the current flags as the candidate's own.

        Its import may set them, and its calls keep them.
        """
        self._flags = self._read()
        self._left |= {
            name: f"{name}: {self._before[name]} before its import, {value} after"
            for name, value in self._flags.items()
            if value != self._before[name]
        }

    def restore_flags(self, seed: int | None = None) -> None:
        """Restores the flags that a call has left changed, and remembers which they were.

        Args:
            seed: The seed of torch's generator before the call; None to leave the generator out.
        """
        if seed is not None and torch.default_generator.initial_seed() != seed:
            name = "seed of torch's generator"
            self._left[name] = f"{name}: a call set it, so random numbers that the caller draws later repeat"
        for flag in FLAGS:
            before, now = self._flags[flag.name], flag.read()
            if now != before:
                self._left[flag.name] = f"{flag.name}: {before} before a call, {now} after; the harness restored it"
                flag.write(before)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that calls left changed, one sentence each."""
        return tuple(self._left.values())

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of the functions that the candidate has replaced."""
        return tuple(
            name
            for name, original in self._originals.items()
            if getattr(original.owner, original.attribute, None) is not original.value
        )

    @property
    def threads(self) -> tuple[str, ...]:
        """The names of the live Python threads that did not exist before."""
        return tuple(thread.name for thread in _enumerate() if thread not in self._threads and thread.is_alive())

    @staticmethod
    def _read() -> dict[str, Any]:
        return {flag.name: flag.read() for flag in FLAGS}

"""Detects what a candidate has changed in its process or left running there.

The module records the original functions when it is imported, which is before any candidate. A
candidate that knows this module can deceive it. So its findings are evidence, and the judge's own
clock does not depend on them.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

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


class _Flag(NamedTuple):
    """A torch setting that outlives the call which changes it."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _set_default_device(_: Any) -> None:
    torch.set_default_device(None)  # torch's own default is to set none


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value)


_MATMUL, _CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn
_CONVOLUTION = _CUDNN.conv  # type: ignore[attr-defined]
_FLAGS = (
    # The newer of torch's two interfaces reads the flag, since it always answers. The older one
    # writes it.
    _Flag(
        "torch.backends.cuda.matmul.allow_tf32",
        lambda: _MATMUL.fp32_precision == "tf32",
        lambda value: setattr(_MATMUL, "allow_tf32", value),
    ),
    _Flag(
        "torch.backends.cudnn.allow_tf32",
        lambda: _CONVOLUTION.fp32_precision == "tf32",
        lambda value: setattr(_CUDNN, "allow_tf32", value),
    ),
    _Flag(
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        *_attribute(_MATMUL, "allow_fp16_reduced_precision_reduction"),
    ),
    _Flag(
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        *_attribute(_MATMUL, "allow_bf16_reduced_precision_reduction"),
    ),
    _Flag("torch.backends.cudnn.enabled", *_attribute(_CUDNN, "enabled")),
    _Flag("torch.backends.cudnn.benchmark", *_attribute(_CUDNN, "benchmark")),
    _Flag("torch.backends.cudnn.deterministic", *_attribute(_CUDNN, "deterministic")),
    _Flag("deterministic algorithms", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    _Flag("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Flag("default device", torch.get_default_device, _set_default_device),
    _Flag("gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    _Flag(
        "autocast on CUDA",
        lambda: torch.is_autocast_enabled("cuda"),
        lambda value: torch.set_autocast_enabled("cuda", value),
    ),
    _Flag(
        "autocast on the CPU",
        lambda: torch.is_autocast_enabled("cpu"),
        lambda value: torch.set_autocast_enabled("cpu", value),
    ),
    _Flag("threads of an operator", torch.get_num_threads, torch.set_num_threads),
)


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

    def restore_flags(self) -> None:
        """Restores the flags that a call has left changed, and remembers which they were."""
        for flag in _FLAGS:
            before, now = self._flags[flag.name], flag.read()
            if now != before:
                self._left[flag.name] = f"{flag.name}: {before} before a call, {now} after; it was put back"
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
        return {flag.name: flag.read() for flag in _FLAGS}

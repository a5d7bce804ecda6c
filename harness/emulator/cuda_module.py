"""Replaces ``torch.cuda`` on the emulated device.

There is one device with one stream, and a launch returns when its work is done.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from harness.emulator.cuda_build import cuda_replacements, refused

DEVICE_NAME = "CUDA emulator (CPU)"
CAPABILITY = (9, 0)

_MULTIPROCESSORS = 132
_MEMORY_BYTES = 16 * 2**30
_UUID = uuid.UUID(int=1)
_TENSOR_TYPES = tuple(name for name in torch.cuda.__all__ if name.endswith("Tensor"))


class Stream:
    """The only stream. Every request for a stream returns it.

    Attributes:
        cuda_stream: The handle that C++ code receives: the default stream.
        stream_id: The stream's number.
        device_index: The device's number.
    """

    cuda_stream = 0
    stream_id = 0
    device_index = 0

    def __init__(self, device: object = None, priority: int = 0, **_: object):
        self.priority = priority

    @property
    def device(self) -> torch.device:
        """The emulated device."""
        return torch.device("cuda", 0)

    def synchronize(self) -> None:
        """Returns at once: no work is pending."""

    def query(self) -> bool:
        """Tells that all work is done, which always holds."""
        return True

    def is_capturing(self) -> bool:
        """Tells that no graph is being captured, which always holds."""
        return False

    def wait_stream(self, stream: object) -> None:
        """Returns at once."""

    def wait_event(self, event: object) -> None:
        """Returns at once."""

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event, or a new one if none is given."""
        recorded = Event() if event is None else event
        recorded.record(self)
        return recorded

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class Event:
    """A moment in time that ``record`` reads from the host's clock."""

    cuda_event = 0

    def __init__(self, *_: object, **__: object):
        self._recorded_s: float | None = None

    def record(self, stream: object = None) -> None:
        """Stores the current time."""
        self._recorded_s = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Returns the milliseconds from this event to another.

        Raises:
            RuntimeError: One of the two events was not recorded.
        """
        if self._recorded_s is None or end_event._recorded_s is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end_event._recorded_s - self._recorded_s) * 1000.0

    def synchronize(self) -> None:
        """Returns at once: no work is pending."""

    def query(self) -> bool:
        """Tells that the event is complete, which always holds."""
        return True

    def wait(self, stream: object = None) -> None:
        """Returns at once."""


class DeviceGuard:
    """Replaces ``torch.cuda.device`` and ``torch.cuda.device_of`` by a context without effect."""

    def __init__(self, device: object = None):
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, function: Any) -> Any:
        """Returns the function, for use as a decorator."""
        return function


class StreamContext:
    """Replaces ``torch.cuda.StreamContext`` by a context without effect."""

    def __init__(self, stream: object = None):
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class NoGraph:
    """Replaces ``torch.cuda.CUDAGraph`` and ``torch.cuda.graph``; nobody can create an instance."""

    def __init__(self, *_: object, **__: object):
        _no_graphs()


def _nothing(*_: object, **__: object) -> None:
    """Replaces functions that have no effect on the emulated device."""


def _zero(*_: object, **__: object) -> int:
    return 0


def _no_graphs(*_: object, **__: object) -> None:
    raise RuntimeError("CUDA graphs are not supported on the CPU emulator; launch the kernels directly.")


def _set_device(device: object) -> None:
    index = device.index if isinstance(device, torch.device) else device
    if isinstance(index, int) and index > 0:
        raise RuntimeError("CUDA error: invalid device ordinal")


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def _memory_info(device: object = None) -> tuple[int, int]:
    return _MEMORY_BYTES, _MEMORY_BYTES


def properties(device: object = None) -> SimpleNamespace:
    """Returns the emulated device's properties under torch's names.

    Args:
        device: The device, in any form that torch accepts.
    """
    return SimpleNamespace(
        name=DEVICE_NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=_MEMORY_BYTES,
        multi_processor_count=_MULTIPROCESSORS,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 * 1024,
        shared_memory_per_block_optin=227 * 1024,
        shared_memory_per_multiprocessor=228 * 1024,
        L2_cache_size=40 * 2**20,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName=DEVICE_NAME,
        uuid=_UUID,
        pci_domain_id=0,
        pci_bus_id=1,
        pci_device_id=0,
        clock_rate=1_980_000,
        memory_clock_rate=2_619_000,
        memory_bus_width=5120,
    )


@contextlib.contextmanager
def _range(message: object, *_: object, **__: object) -> Iterator[None]:
    yield


def replacements() -> dict[str, object]:
    """Returns the replacements for ``torch.cuda``'s functions and classes.

    Returns:
        Values by attribute name.
    """
    values: dict[str, object] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing,
        "_lazy_init": _nothing,
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_tf32_supported": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": _zero,
        "set_device": _set_device,
        "get_device_name": lambda device=None: DEVICE_NAME,
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_device_properties": properties,
        "get_arch_list": lambda: ["sm_90"],
        "mem_get_info": _memory_info,
        "current_stream": lambda device=None: Stream(),
        "default_stream": lambda device=None: Stream(),
        "set_stream": _nothing,
        "get_stream_from_external": lambda data_ptr, device=None: Stream(),
        "stream": lambda stream=None: StreamContext(stream),
        "StreamContext": StreamContext,
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "device": DeviceGuard,
        "device_of": DeviceGuard,
        "_DeviceGuard": DeviceGuard,
        "manual_seed": _seed,
        "manual_seed_all": _seed,
        "seed": lambda: _seed(torch.seed()),
        "seed_all": lambda: _seed(torch.seed()),
        "initial_seed": lambda: torch.initial_seed(),
        "get_rng_state": lambda device="cuda": torch.default_generator.get_state(),
        "get_rng_state_all": lambda: [torch.default_generator.get_state()],
        "set_rng_state": lambda state, device="cuda": torch.default_generator.set_state(state),
        "set_rng_state_all": lambda states: torch.default_generator.set_state(states[0]),
        "memory_snapshot": lambda mempool_id=None: [],
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "memory_summary": lambda device=None, abbreviated=False: "",
        "default_generators": (torch.default_generator,),
        "can_device_access_peer": lambda device, peer: False,
        "CUDAGraph": NoGraph,
        "graph": NoGraph,
        "make_graphed_callables": _no_graphs,
        "_compile_kernel": refused(
            "torch.cuda._compile_kernel", "build the kernel with load_inline, or judge it on a GPU"
        ),
        **cuda_replacements(),
    }
    for name in ("synchronize", "empty_cache", "ipc_collect", "set_per_process_memory_fraction", "set_sync_debug_mode"):
        values[name] = _nothing
    for name in (name for name in torch.cuda.__all__ if name.startswith("reset_")):
        values[name] = _nothing
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        values[name] = _zero
    for name in ("get_sync_debug_mode", "device_memory_used"):
        values[name] = _zero
    for name in _TENSOR_TYPES:
        values[name] = getattr(torch, name)
    return values


def marker_replacements() -> dict[str, object]:
    """Returns the replacements for ``torch.cuda.nvtx``'s functions.

    Returns:
        Values by attribute name.
    """
    return {
        "range": _range,
        "range_push": _zero,
        "range_pop": _zero,
        "range_start": _zero,
        "range_end": _nothing,
        "mark": _nothing,
    }

"""Makes torch look built for CUDA to a solution on the emulated device.

The module replaces what only a CUDA build has beside tensors and streams: the version, the toolkit,
the libraries and the allocator. What makes no sense without a GPU raises ``Unsupported``, which names it.
"""

from __future__ import annotations

import enum
import functools
import itertools
import sys
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import cpp_extension

from harness.compilation.errors import Unsupported

#: The versions of CUDA's headers (``CUDART_VERSION``), of cuDNN and of NCCL.
CUDA_VERSION = "12.8"
_CUDNN_VERSION = 91002
_NCCL_VERSION = (2, 27, 3)
_CUDA_HOME = "/usr/local/cuda"
_KERNEL = "write the operation as a kernel, or call torch's own from Python"
_ALLOCATOR = "use torch's own allocator"
_MEASURE = "leave it out, or judge on a GPU"

_Patch = tuple[object, str, object]


def refused(construct: str, remedy: str) -> Callable[..., Any]:
    """Returns a function that refuses a construct by name.

    Args:
        construct: What the emulator lacks.
        remedy: What a solution may do instead.
    """

    def refuse(*_: object, **__: object) -> Any:
        raise Unsupported(construct, "the solution", None, remedy)

    return refuse


def _nothing(*_: object, **__: object) -> None:
    """Replaces functions that have no effect on the emulated device."""


class CudaErrorCode(enum.IntEnum):
    """The result of a call of CUDA's runtime: all calls succeed."""

    success = 0


class Cudart:
    """Replaces the module that ``torch.cuda.cudart()`` returns."""

    cudaError = CudaErrorCode  # CUDA's name

    @staticmethod
    def _succeed(*_: object) -> CudaErrorCode:
        return CudaErrorCode.success

    cudaProfilerStart = cudaProfilerStop = _succeed
    cudaHostRegister = cudaHostUnregister = _succeed
    cudaStreamCreate = staticmethod(refused("cudart().cudaStreamCreate", "use torch.cuda.Stream"))
    cudaStreamDestroy = staticmethod(refused("cudart().cudaStreamDestroy", "use torch.cuda.Stream"))

    @staticmethod
    def cudaGetErrorString(code: int) -> str:
        """Returns what CUDA says of a result."""
        return "no error" if code == 0 else "unrecognized error code"

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:
        """Returns the free and the whole memory of the device, in bytes."""
        free, total = torch.cuda.mem_get_info(device)
        return free, total


class MemPool:
    """Replaces ``torch.cuda.MemPool``: all memory is of one pool, whatever its name.

    Args:
        allocator: The pool's allocator, which must be torch's own.
    """

    _numbers = itertools.count(1)

    def __init__(self, allocator: object = None, *_: object, **__: object):
        if allocator is not None:
            refused("torch.cuda.MemPool with an allocator", _ALLOCATOR)()
        self.allocator = None
        self.id = (0, next(self._numbers))

    def use_count(self) -> int:
        """Returns the number of users: the caller."""
        return 1

    def snapshot(self) -> list[dict[str, Any]]:
        """Returns the pool's segments, of which the emulator knows none."""
        return []


@contextmanager
def _use_mem_pool(pool: object, device: object = None) -> Iterator[None]:
    yield


class Refusing:
    """The base class of classes that nobody can make an instance of."""

    construct = ""
    remedy = ""

    def __init__(self, *_: object, **__: object):
        refused(self.construct, self.remedy)()


class NoAllocator(Refusing):
    """Replaces ``torch.cuda.CUDAPluggableAllocator``."""

    construct, remedy = "torch.cuda.CUDAPluggableAllocator", _ALLOCATOR


class NoGreenContext(Refusing):
    """Replaces ``torch.cuda.GreenContext``."""

    construct, remedy = "torch.cuda.GreenContext", "launch on the current stream"


#: Memory that solutions hold by its address alone.
_allocations: dict[int, torch.Tensor] = {}


def _allocate(size: int, device: object = None, stream: object = None) -> int:
    memory = torch.empty(max(int(size), 1), dtype=torch.uint8, device="cpu")
    _allocations[memory.data_ptr()] = memory
    return memory.data_ptr()


def _free(address: int) -> None:
    _allocations.pop(address, None)


def cuda_replacements() -> dict[str, object]:
    """Returns the replacements for what ``torch.cuda`` has of a CUDA build.

    Returns:
        Values by attribute name.
    """
    values: dict[str, object] = {
        "cudart": lambda: Cudart,
        "_cudart": Cudart,
        "_sleep": _nothing,
        "MemPool": MemPool,
        "use_mem_pool": _use_mem_pool,
        "graph_pool_handle": lambda: (0, next(MemPool._numbers)),
        "caching_allocator_alloc": _allocate,
        "caching_allocator_delete": _free,
        "caching_allocator_enable": _nothing,
        "get_allocator_backend": lambda: "native",
        "CUDAPluggableAllocator": NoAllocator,
        "GreenContext": NoGreenContext,
        "memory_stats": lambda device=None: defaultdict(int),
        "memory_stats_as_nested_dict": lambda device=None: {},
        "host_memory_stats": lambda: defaultdict(int),
        "host_memory_stats_as_nested_dict": lambda: {},
        "change_current_allocator": refused("torch.cuda.change_current_allocator", _ALLOCATOR),
    }
    for name in ("current_blas_handle", "current_solver_handle"):
        values[name] = refused(f"torch.cuda.{name}", _KERNEL)
    for name in ("utilization", "temperature", "power_draw", "clock_rate", "memory_usage", "list_gpu_processes"):
        values[name] = refused(f"torch.cuda.{name}", _MEASURE)
    return {name: value for name, value in values.items() if hasattr(torch.cuda, name)}


def patches() -> Iterator[_Patch]:
    """Yields the patches outside ``torch.cuda`` itself: owner, name and value."""
    yield torch.version, "cuda", torch.version.cuda or CUDA_VERSION
    yield cpp_extension, "CUDA_HOME", cpp_extension.CUDA_HOME or _CUDA_HOME
    yield torch.backends.cuda, "is_built", _unless_torch_asks(torch.backends.cuda.is_built, True)
    yield torch.backends.cudnn, "is_available", lambda: True
    yield torch.backends.cudnn, "version", lambda: _CUDNN_VERSION
    yield torch._C, "_cuda_getCurrentRawStream", lambda device=0: 0
    yield torch.autograd.profiler.profile, "__init__", _profiling_the_host()
    yield torch.Tensor, "is_pinned", lambda self, device=None: is_pinned(self)
    yield from _memory_patches()
    for module, names in (
        ("jiterator", ("_create_jit_fn", "_create_multi_output_jit_fn")),
        ("nccl", ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "unique_id", "init_rank")),
        ("tunable", ("tune_gemm_in_file", "mgpu_tune_gemm_in_file", "read_file", "get_results", "get_validators")),
    ):
        for name in names:
            yield from _patch(f"torch.cuda.{module}", name, refused(f"torch.cuda.{module}.{name}", _KERNEL))
    yield from _patch("torch.cuda.nccl", "version", lambda: _NCCL_VERSION)
    for name in ("enable", "tuning_enable", "record_untuned_enable"):
        yield from _patch("torch.cuda.tunable", name, _nothing)
    for name in ("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"):
        yield from _patch("torch.cuda.tunable", name, lambda: False)
    for name in ("max_tuning_duration", "max_tuning_iterations", "rotating_buffer_size", "filename"):
        yield from _patch("torch.cuda.tunable", f"set_{name}", _nothing)
        yield from _patch("torch.cuda.tunable", f"get_{name}", (lambda: "") if name == "filename" else (lambda: 0))


def _memory_patches() -> Iterator[_Patch]:
    """Yields the patches of what ``torch.cuda.memory`` alone has."""
    memory: dict[str, object] = {
        "_record_memory_history": _nothing,
        "_set_allocator_settings": _nothing,
        "_set_memory_metadata": _nothing,
        "_get_memory_metadata": lambda: "",
        "_snapshot": lambda *_, **__: {"segments": [], "device_traces": []},
        "_dump_snapshot": refused("torch.cuda.memory._dump_snapshot", _MEASURE),
    }
    for name, value in memory.items():
        yield from _patch("torch.cuda.memory", name, value)


def _patch(module: str, name: str, value: object) -> Iterator[_Patch]:
    """Yields the patch of a module, if this version of torch has the module and the name."""
    owner = sys.modules.get(module)
    if owner is not None and hasattr(owner, name):
        yield owner, name, value


def _unless_torch_asks(original: Callable[[], Any], answer: object) -> Callable[[], Any]:
    """Returns a function that answers a solution, and torch's own code as before."""

    @functools.wraps(original)
    def asked() -> Any:
        asking = str(sys._getframe(1).f_globals.get("__name__", ""))
        return original() if asking.partition(".")[0] == "torch" else answer

    return asked


def _profiling_the_host() -> Callable[..., None]:
    """Returns a constructor of ``torch.autograd.profiler.profile`` that profiles the host's work alone."""
    set_up: Any = torch.autograd.profiler.profile.__init__

    @functools.wraps(set_up)
    def set_up_host(self: Any, enabled: Any = True, **options: Any) -> None:
        if options.get("use_device") == "cuda" or options.get("use_cuda"):
            options |= {"use_device": None, "use_cuda": False, "use_cpu": True}
        set_up(self, enabled, **options)

    return set_up_host


#: Tensors that a solution has pinned, by their identity.
_pinned: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Notes that a tensor counts as pinned, and returns it."""
    _pinned[id(tensor)] = tensor
    if not tensor.is_meta:
        torch.ops.aten.to.device(tensor, "cpu", tensor.dtype)  # so the checking mode knows that the host may access it
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Tells whether a tensor counts as pinned: its memory is ordinary memory."""
    return _pinned.get(id(tensor)) is tensor


class CudaGenerator(torch._C.Generator):
    """A generator of the CPU that names the emulated device."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The emulated device."""
        return torch.device("cuda", 0)

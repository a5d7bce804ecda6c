"""What a device means inside the worker: how a solution builds, runs and is asked for faults there."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

import torch

from harness.compilation.cuda import CudaLoader
from harness.emulator.device import emulated_cuda
from harness.emulator.gpu_build import compile_for_gpu
from harness.emulator.inline import InlineLoader
from harness.emulator.session import POISONS, EmulatorSession, ThreadOrder
from harness.emulator.toolchain import RuntimeLibraries
from harness.system.files import read_source, source_text
from harness.wire import cuda_memory
from harness.wire.arena import Arena, map_file
from harness.wire.messages import Compiled, Launched
from harness.worker import profiling
from harness.worker.tally import Tally


class Loader(Protocol):
    """What takes the place of torch's ``load_inline`` and ``load``; ``built`` maps build keys to libraries."""

    built: dict[str, Path]

    @property
    def load_inline(self) -> Callable[..., Any]:
        """As ``torch.utils.cpp_extension.load_inline``."""

    @property
    def load(self) -> Callable[..., Any]:
        """As ``torch.utils.cpp_extension.load``."""


class Platform(Protocol):
    """A device, as the worker sees it.

    Attributes:
        device: Where inputs lie and outputs must.
        limits_memory: Whether a limit on the address space bounds the candidate's memory.
    """

    device: torch.device
    limits_memory: bool

    def loader(
        self,
        solution: Path,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        check: str = "",
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> Loader:
        """The loader for one solution.

        Args:
            solution: The solution file.
            cached: Libraries that are built already, by build key.
            out_dir: Where new ones are put.
            on_build: Called with ``"begin"`` and ``"end"`` and a name around a compilation.
            check: The architecture where every access is to be checked.
            refused: Message and log of what a compiler has refused already, by build key.
        """

    def running(self) -> contextlib.AbstractContextManager[None]:
        """The context in which the candidate's code runs."""

    def set_thread_order(self, order: str, seed: int) -> None:
        """Choose the order of threads for later launches, where the device lets us."""

    def know(self, tensors: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Where the arena's tensors lie that kernels read, by what reports call them."""

    def synchronize(self) -> None:
        """Wait for everything that runs on the device; a fault of a kernel is raised here."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Have new memory of these sizes (bytes) read as NaN, not as an earlier answer."""

    def take_reports(self) -> list[dict[str, Any]]:
        """Faults that were seen since the last call."""

    def peak_bytes(self, call: Callable[[], Any], model: torch.nn.Module) -> int | None:
        """Device memory that a call holds at its peak, the model's own included; None where that cannot be told."""

    def launched(self, call: Callable[[], Any]) -> list[Launched] | None:
        """Kernels that a call launches, and copies, in the order of their first launch; None where none can be seen."""

    def watched(self, tally: Tally, direction: str) -> contextlib.AbstractContextManager[None]:
        """A block in which the candidate runs once, in a judged call; adds what it does to a tally, where that shows.

        Args:
            tally: What the instance did so far.
            direction: ``forward`` or ``backward``.
        """

    def compiled(self, arch: str) -> Compiled:
        """What nvcc makes of the solution's CUDA sources; nothing where they have been built for a GPU already."""

    def arena(self, descriptor: int, size: int) -> Arena:
        """Map the judge's arena; the descriptor is closed."""

    def slots(self, descriptor: int, size: int) -> Arena:
        """Map a further arena of the judge's, until ``release_slots``; the descriptor is closed."""

    def release_slots(self) -> None:
        """Unmap the further arena, if there is one, and give unused memory back."""

    def release(self) -> None:
        """Give unused memory back, and unmap the arenas."""


class EmulatedPlatform:
    """The CPU: CUDA source on the emulator.

    Args:
        libraries: The emulator's runtime libraries by name.
    """

    device = torch.device("cpu")
    limits_memory = True

    def __init__(self, libraries: Mapping[str, str]):
        self._session = EmulatorSession(RuntimeLibraries(Path(libraries["core"]), Path(libraries["torch"])))
        self._poisons: Iterator[int] | None = None  # where kernels are checked
        self._compile: Callable[[str], Compiled] = lambda arch: Compiled((), "", "", None, None, "", 0.0)

    def loader(
        self,
        solution: Path,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        check: str = "",
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> Loader:
        """The emulator's loader."""
        text = source_text(read_source(solution))
        if check:
            self._session.set_architecture(check)
            self._poisons = itertools.cycle(POISONS)
            self._session.set_checking(True, next(self._poisons))
        loader = InlineLoader(solution, text, cached, out_dir, on_build, "check" if check else "fast", refused)
        self._compile = lambda arch: compile_for_gpu(loader.given.values(), loader.locator, arch, out_dir, on_build)
        return loader

    def running(self) -> contextlib.AbstractContextManager[None]:
        """``cuda`` means the emulated device."""
        return emulated_cuda()

    def set_thread_order(self, order: str, seed: int) -> None:
        """Tell the runtime; new memory is filled otherwise from then on where kernels are checked."""
        self._session.set_thread_order(cast(ThreadOrder, order), seed)
        if self._poisons is not None:
            self._session.set_checking(True, next(self._poisons))

    def know(self, tensors: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Tell the runtime."""
        self._session.know(tensors)

    def synchronize(self) -> None:
        """Nothing: the emulator's launches are synchronous."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Nothing: the emulator's allocator poisons all new memory."""

    def take_reports(self) -> list[dict[str, Any]]:
        """What the runtime saw."""
        return self._session.take_reports()

    def peak_bytes(self, call: Callable[[], Any], model: torch.nn.Module) -> int | None:
        """Unknown: host memory is everybody's."""
        return None

    def launched(self, call: Callable[[], Any]) -> list[Launched]:
        """What the runtime counts; nothing else is a kernel here."""
        self._session.take_launches()
        call()
        return [Launched(name, count, True, None) for name, count in self._session.take_launches().items()]

    @contextlib.contextmanager
    def watched(self, tally: Tally, direction: str) -> Iterator[None]:
        """The runtime counts threads and operators in every call alike: none can tell that it is watched."""
        self._session.take_threads()
        self._session.take_operators()
        yield  # a call that raised is no part of the tally, and may have left no memory for it
        tally.add(direction, self._session.take_operators(), self._session.take_threads())

    def compiled(self, arch: str) -> Compiled:
        """What nvcc makes of what the loader was given."""
        return self._compile(arch)

    def arena(self, descriptor: int, size: int) -> Arena:
        """Map the shared file."""
        try:
            return Arena(map_file(descriptor, size))
        finally:
            os.close(descriptor)

    def slots(self, descriptor: int, size: int) -> Arena:
        """Map the shared file."""
        return self.arena(descriptor, size)

    def release_slots(self) -> None:
        """Nothing: memory goes with the last tensor over it."""

    def release(self) -> None:
        """Nothing: memory goes with the last tensor over it."""


class CudaPlatform:
    """A GPU.

    Args:
        index: Its index among the visible ones.
        builds_for: The compute capability to build for, where nothing is to run and no GPU is visible; None elsewhere.
    """

    limits_memory = False  # CUDA reserves address space far beyond what it uses

    def __init__(self, index: int, builds_for: tuple[int, int] | None = None):
        self.device = torch.device("cuda", index)
        if builds_for is None:
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
        self._capability = builds_for or torch.cuda.get_device_capability(self.device)
        self._memory: cuda_memory.SharedDeviceMemory | None = None
        self._slots: cuda_memory.SharedDeviceMemory | None = None
        self._loader: CudaLoader | None = None
        self._written: frozenset[str] = frozenset()

    def loader(
        self,
        solution: Path,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        check: str = "",
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> Loader:
        """Torch's own loader, in folders of this worker's; nothing is checked here."""
        self._written = profiling.triton_kernels(source_text(read_source(solution)))
        self._loader = CudaLoader(solution, cached, out_dir, on_build, self._capability, refused)
        return self._loader

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Nothing special: this is a GPU."""
        return contextlib.nullcontext()

    def set_thread_order(self, order: str, seed: int) -> None:
        """Nothing: the hardware decides."""

    def know(self, tensors: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Nothing: the hardware knows its memory."""

    def synchronize(self) -> None:
        """Wait for the whole device."""
        torch.cuda.synchronize(self.device)

    def poison(self, sizes: Sequence[int]) -> None:
        """Fill blocks of these sizes and hand them back to torch's cache, which gives them out next."""
        blocks = [torch.empty(size, dtype=torch.uint8, device=self.device).fill_(0xFF) for size in sizes]
        del blocks

    def take_reports(self) -> list[dict[str, Any]]:
        """Nothing: a GPU reports faults as errors."""
        return []

    def peak_bytes(self, call: Callable[[], Any], model: torch.nn.Module) -> int | None:
        """What torch's allocator held, and what was taken from the device beside it and not given back."""
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()
        outside = self._outside_of_torch()
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        call()
        torch.cuda.synchronize(self.device)
        peak = torch.cuda.max_memory_allocated(self.device) - before
        own = sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
        return own + peak + max(0, self._outside_of_torch() - outside)

    def _outside_of_torch(self) -> int:
        """Bytes of the device that torch's allocator in this process does not hold."""
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free - torch.cuda.memory_reserved(self.device)

    def launched(self, call: Callable[[], Any]) -> list[Launched] | None:
        """What torch's profiler sees."""
        return profiling.launched(call, self._loader.loaded if self._loader is not None else [], self._written)

    def watched(self, tally: Tally, direction: str) -> contextlib.AbstractContextManager[None]:
        """Nothing: judged calls run as timed ones do, without a profiler; ``launched`` sees the device's time."""
        return contextlib.nullcontext()

    def compiled(self, arch: str) -> Compiled:
        """Nothing: they were built for this GPU."""
        return Compiled((), "", "", None, None, "", 0.0)

    def arena(self, descriptor: int, size: int) -> Arena:
        """Map the judge's device memory, in place of the last case's."""
        self.release()
        self._memory = cuda_memory.attach(self.device.index, descriptor, size)
        return Arena(self._memory.tensor())

    def slots(self, descriptor: int, size: int) -> Arena:
        """Map the judge's device memory beside the first arena."""
        self._slots = cuda_memory.attach(self.device.index, descriptor, size)
        return Arena(self._slots.tensor())

    def release_slots(self) -> None:
        """Unmap the further arena, and give unused memory back, that of reference cycles too: compilers leave some."""
        if self._slots is not None:
            self._slots.close()
            self._slots = None
        gc.collect()
        torch.cuda.empty_cache()

    def release(self) -> None:
        """Unmap the arenas and empty torch's cache."""
        self.release_slots()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        torch.cuda.empty_cache()


def platform_for(device: str, libraries: Mapping[str, str], builds_for: Sequence[int] | None = None) -> Platform:
    """The platform of ``cpu`` or ``cuda:N``; of a GPU that is not visible, to build for its compute capability."""
    if device == "cpu":
        return EmulatedPlatform(libraries)
    capability = None if builds_for is None else (builds_for[0], builds_for[1])
    return CudaPlatform(torch.device(device).index or 0, capability)

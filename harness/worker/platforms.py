"""The worker's view of a device: how a solution builds and runs there, and how it fails."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, cast

import torch

from harness.compilation.cuda import CudaLoader
from harness.emulator import cuda_module
from harness.emulator.compiler import Mode
from harness.emulator.device import emulated_cuda
from harness.emulator.gpu_build import compile_for_gpu
from harness.emulator.inline import InlineLoader
from harness.emulator.session import CHECKED_FILLS, FILLS, EmulatorSession, Fill, ThreadOrder
from harness.emulator.toolchain import RuntimeLibraries
from harness.scanning.kernel_languages import kernel_languages
from harness.system.files import read_source, source_text
from harness.wire import cuda_memory
from harness.wire.arena import Arena, map_file
from harness.wire.replies import Compiled, Launched
from harness.worker import profiling
from harness.worker.tally import Tally
from harness.worker.triton_kernels import Interpreted, note_builds


class Loader(Protocol):
    """The replacement for torch's ``load_inline`` and ``load``.

    ``built`` maps build keys to libraries, and ``refused`` maps them to the message and the log of a
    compiler that refused the build.
    """

    built: dict[str, Path]
    refused: dict[str, tuple[str, str]]

    @property
    def load_inline(self) -> Callable[..., Any]:
        """Replaces ``torch.utils.cpp_extension.load_inline``."""

    @property
    def load(self) -> Callable[..., Any]:
        """Replaces ``torch.utils.cpp_extension.load``."""


class Platform(Protocol):
    """The interface of a device in the worker.

    Attributes:
        device: The device of inputs and outputs.
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
        *,
        check: str = "",
        exhaustive: bool = False,
        compat: bool = False,
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> Loader:
        """Creates the loader for one solution.

        Args:
            solution: The solution file.
            cached: The libraries that exist already, by build key.
            out_dir: The folder for new libraries.
            on_build: A callback around each compilation. It receives ``"begin"`` or ``"end"``, and
                a name.
            check: The architecture for checking every access; empty to check none.
            exhaustive: Whether checked launches run in all orders of what synchronises threads.
            compat: Whether code for an older torch may build.
            refused: The message and log of each build that a compiler has already refused, by build
                key.
        """

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which the candidate's code runs."""

    def set_thread_order(self, order: str, seed: int) -> None:
        """Sets the order of threads for later launches, if the device allows it."""

    def set_fill(self, number: int) -> None:
        """Chooses the pattern that fills new memory from now on."""

    def know(self, tensors: Mapping[str, Sequence[torch.Tensor]], *, more: bool = False) -> None:
        """Registers tensors of the device that have new values, by their names in reports.

        Forgets earlier ones unless there are ``more``.
        """

    def synchronize(self) -> None:
        """Waits for all work on the device, and raises any fault of a kernel."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Makes new memory of these sizes (bytes) read as the pattern, not as an earlier answer."""

    def take_reports(self) -> list[dict[str, Any]]:
        """Returns the faults seen since the last call."""

    def peak_bytes(self, call: Callable[[], Any], model: torch.nn.Module) -> int | None:
        """Returns the device memory in bytes that a call and the model hold at the peak.

        Returns:
            The bytes; None if the platform cannot measure them.
        """

    def launched(self, call: Callable[[], Any]) -> list[Launched] | None:
        """Returns the kernels and copies that a call launches, in the order of their first launch.

        Returns:
            The launches; None if the platform cannot see any.
        """

    def watched(self, tally: Tally, direction: str) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which the candidate runs once, in a judged call.

        The context adds the call's work to the tally, on a platform that can see it.

        Args:
            tally: The work of the instance so far.
            direction: ``forward`` or ``backward``.
        """

    def compiled(self, arch: str) -> Compiled:
        """Compiles the solution's CUDA sources with nvcc.

        Returns an empty result if a GPU build exists already.
        """

    def arena(self, descriptor: int, size: int) -> Arena:
        """Maps the judge's arena and closes the descriptor."""

    def slots(self, descriptor: int, size: int) -> Arena:
        """Maps another arena of the judge until ``release_slots``, and closes the descriptor."""

    def release_slots(self) -> None:
        """Unmaps the slots' arena, if there is one, and frees unused memory."""

    def release(self) -> None:
        """Frees unused memory and unmaps the arenas."""


class EmulatedPlatform:
    """The CPU, which runs CUDA source on the emulator.

    Args:
        libraries: The paths of the emulator's runtime libraries, by name, and of precompiled
            ``headers``, if there are any.
    """

    device = torch.device("cpu")
    limits_memory = True

    def __init__(self, libraries: Mapping[str, str]):
        self._session = EmulatorSession(RuntimeLibraries(Path(libraries["core"]), Path(libraries["torch"])))
        self._headers = Path(libraries["headers"]) if "headers" in libraries else None
        for module in (torch.autograd, torch._C._autograd):  # what counts operators cannot be switched off
            vars(module)["_enable_record_function"] = lambda enable: None
        self._is_checking = False
        self._fills: Sequence[Fill] = FILLS
        self._interpreted = Interpreted()
        self._compile: Callable[[str], Compiled] = lambda arch: Compiled(
            (), fault="", error="", line=None, kernel=None, log="", seconds=0.0
        )

    def loader(
        self,
        solution: Path,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        *,
        check: str = "",
        exhaustive: bool = False,
        compat: bool = False,
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> Loader:
        """Creates the emulator's loader."""
        text = source_text(read_source(solution))
        if kernel_languages(text).triton:
            self._interpreted = Interpreted.from_now_on()
        if check:
            self._session.set_architecture(check)
            self._is_checking, self._fills = True, CHECKED_FILLS
            self._session.set_checking(True)
            self._session.set_exhaustive(exhaustive)
        mode: Mode = "check" if check else "fast"
        loader = InlineLoader(
            solution, text, cached, out_dir, on_build,
            mode=mode, compat=compat, refused=refused, headers=self._headers,
        )  # fmt: skip
        self._compile = lambda arch: compile_for_gpu(
            loader.given.values(), loader.locator, arch, out_dir, on_build, compat=compat
        )
        return loader

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Returns the context in which ``cuda`` means the emulated device."""
        return emulated_cuda()

    def set_thread_order(self, order: str, seed: int) -> None:
        """Passes the order to the runtime."""
        self._session.set_thread_order(cast(ThreadOrder, order), seed)

    def set_fill(self, number: int) -> None:
        """Passes the pattern to the runtime."""
        self._session.set_checking(self._is_checking, self._fills[number % len(self._fills)])

    def know(self, tensors: Mapping[str, Sequence[torch.Tensor]], *, more: bool = False) -> None:
        """Passes the tensors to the runtime."""
        self._session.know(tensors, more=more)

    def synchronize(self) -> None:
        """Does nothing: the emulator's launches are synchronous."""

    def poison(self, sizes: Sequence[int]) -> None:
        """Does nothing: the emulator's allocator poisons all new memory."""

    def take_reports(self) -> list[dict[str, Any]]:
        """Returns the faults that the runtime saw."""
        return self._session.take_reports()

    def peak_bytes(self, call: Callable[[], Any], model: torch.nn.Module) -> int | None:
        """Returns None: other work shares the host's memory."""
        return None

    def launched(self, call: Callable[[], Any]) -> list[Launched]:
        """Returns the launches that the runtime and Triton's interpreter count; there are no others."""
        self._session.take_launches()
        self._interpreted.launches.clear()
        call()
        launches = self._session.take_launches() | self._interpreted.launches
        return [Launched(name, count, True, None) for name, count in launches.items()]

    @contextlib.contextmanager
    def watched(self, tally: Tally, direction: str) -> Iterator[None]:
        """Counts threads and operators in the runtime, and the elements that Triton kernels access.

        The runtime counts in every call, so no candidate can tell that it is watched.
        """
        self._session.take_threads()
        self._session.take_operators()
        self._interpreted.elements = 0
        # A call that raised does not enter the tally, and may have left no memory for it.
        yield
        own = self._session.take_threads() + self._interpreted.elements
        tally.add(direction, self._session.take_operators(), own)

    def compiled(self, arch: str) -> Compiled:
        """Compiles the sources that the loader received with nvcc."""
        return self._compile(arch)

    def arena(self, descriptor: int, size: int) -> Arena:
        """Maps the shared file."""
        try:
            return Arena(map_file(descriptor, size))
        finally:
            os.close(descriptor)

    def slots(self, descriptor: int, size: int) -> Arena:
        """Maps the shared file."""
        return self.arena(descriptor, size)

    def release_slots(self) -> None:
        """Does nothing: the memory goes with the last tensor over it."""

    def release(self) -> None:
        """Does nothing: the memory goes with the last tensor over it."""


#: The fills of a GPU's new memory, by trial: NaN, and a large number of each sign, which shows where
#: code drops NaN.
_BYTES = (0xFF, 0x7B, 0xFB)


class CudaPlatform:
    """A GPU.

    Args:
        index: The device's index among the visible GPUs.
        builds_for: The compute capability to build for, if the process only builds and no GPU is
            visible; else None.
    """

    # CUDA reserves far more address space than it uses.
    limits_memory = False

    def __init__(self, index: int, builds_for: tuple[int, int] | None = None):
        self.device = torch.device("cuda", index)
        if builds_for is None:
            torch.cuda.set_device(self.device)
            torch.zeros(1, device=self.device)
        self._only_builds = builds_for is not None
        if builds_for is not None:  # candidates choose compiler flags by it
            cuda_module.CAPABILITY = builds_for
        self._capability = builds_for or torch.cuda.get_device_capability(self.device)
        self._memory: cuda_memory.SharedDeviceMemory | None = None
        self._slots: cuda_memory.SharedDeviceMemory | None = None
        self._fill = _BYTES[0]
        self._loader: CudaLoader | None = None
        self._written: frozenset[str] = frozenset()

    def loader(
        self,
        solution: Path,
        cached: Mapping[str, Path],
        out_dir: Path,
        on_build: Callable[[str, str], None],
        *,
        check: str = "",
        exhaustive: bool = False,
        compat: bool = False,
        refused: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> Loader:
        """Creates torch's own loader with this worker's folders. A GPU checks no accesses."""
        self._written = kernel_languages(source_text(read_source(solution))).triton
        if self._written:
            note_builds(on_build)
        self._loader = CudaLoader(
            solution, cached, out_dir, on_build, capability=self._capability, compat=compat, refused=refused
        )
        return self._loader

    def running(self) -> contextlib.AbstractContextManager[None]:
        """Returns an empty context: this is a GPU.

        In a process that only builds, ``cuda`` means the emulated device, so that a candidate that
        asks for a GPU or moves tensors there gets to its builds.
        """
        return emulated_cuda() if self._only_builds else contextlib.nullcontext()

    def set_thread_order(self, order: str, seed: int) -> None:
        """Does nothing: the hardware decides."""

    def set_fill(self, number: int) -> None:
        """Keeps the pattern for ``poison``."""
        self._fill = _BYTES[number % len(_BYTES)]

    def know(self, tensors: Mapping[str, Sequence[torch.Tensor]], *, more: bool = False) -> None:
        """Does nothing: the hardware knows its memory."""

    def synchronize(self) -> None:
        """Waits for the whole device."""
        torch.cuda.synchronize(self.device)

    def poison(self, sizes: Sequence[int]) -> None:
        """Fills blocks of these sizes and returns them to torch's cache, which reuses them next."""
        blocks = [torch.empty(size, dtype=torch.uint8, device=self.device).fill_(self._fill) for size in sizes]
        del blocks

    def take_reports(self) -> list[dict[str, Any]]:
        """Returns nothing: a GPU reports faults as errors."""
        return []

    def peak_bytes(self, call: Callable[[], Any], model: torch.nn.Module) -> int | None:
        """Measures the peak of torch's allocator.

        Device memory that the call took outside of torch and kept counts as well.
        """
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
        """Returns the device bytes in use that torch's allocator in this process does not hold."""
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free - torch.cuda.memory_reserved(self.device)

    def launched(self, call: Callable[[], Any]) -> list[Launched] | None:
        """Returns the launches that torch's profiler sees."""
        return profiling.launched(call, self._loader.loaded if self._loader is not None else [], self._written)

    def watched(self, tally: Tally, direction: str) -> contextlib.AbstractContextManager[None]:
        """Returns an empty context: judged calls run without a profiler, as timed ones do.

        ``launched`` measures the kernels' device time instead.
        """
        return contextlib.nullcontext()

    def compiled(self, arch: str) -> Compiled:
        """Returns an empty result: the sources were built for this GPU."""
        return Compiled((), fault="", error="", line=None, kernel=None, log="", seconds=0.0)

    def arena(self, descriptor: int, size: int) -> Arena:
        """Maps the judge's device memory, in place of the last case's."""
        self.release()
        self._memory = cuda_memory.attach(self.device.index, descriptor, size)
        return Arena(self._memory.tensor())

    def slots(self, descriptor: int, size: int) -> Arena:
        """Maps the judge's device memory in addition to the first arena."""
        self._slots = cuda_memory.attach(self.device.index, descriptor, size)
        return Arena(self._slots.tensor())

    def release_slots(self) -> None:
        """Unmaps the slots' arena and frees unused memory.

        That includes memory in reference cycles, which compilers leave behind.
        """
        if self._slots is not None:
            self._slots.close()
            self._slots = None
        gc.collect()
        torch.cuda.empty_cache()

    def release(self) -> None:
        """Unmaps the arenas and empties torch's cache."""
        self.release_slots()
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        torch.cuda.empty_cache()


def platform_for(device: str, libraries: Mapping[str, str], builds_for: Sequence[int] | None = None) -> Platform:
    """Returns the platform for ``cpu`` or ``cuda:N``.

    With ``builds_for`` the platform builds for that compute capability and needs no visible GPU.
    """
    if device == "cpu":
        return EmulatedPlatform(libraries)
    capability = None if builds_for is None else (builds_for[0], builds_for[1])
    return CudaPlatform(torch.device(device).index or 0, capability)

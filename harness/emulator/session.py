"""Loads the emulator's runtime into this process, sets its thread order and reads its reports."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.aten.operators import IDLE
from harness.emulator.architectures import ARCHITECTURES
from harness.emulator.lines import with_lines
from harness.emulator.toolchain import RuntimeLibraries
from harness.errors import ToolchainError

if TYPE_CHECKING:
    from torch import Tensor

ThreadOrder = Literal["forward", "reverse", "random"]


class Fill(NamedTuple):
    """Two bytes each, the low one first, that fill memory.

    Attributes:
        memory: For new memory.
        zones: For the zones before and behind it.
    """

    memory: int
    zones: int


#: The fills of checked launches, in turns. NaN survives most arithmetic. A large number of each sign
#: (2.6e36 as float, 65,376 as half) shows where code drops NaN, as in a maximum or a minimum. None of
#: them is -1, which programs do store. In a zone 0xFFF5 is NaN; a sum leaves a trace in 0.0008 (0.8
#: as half) alone.
CHECKED_FILLS = (Fill(0xFFF7, 0x3A5B), Fill(0x7BFB, 0xFFF5), Fill(0xFBFB, 0x7BF9))
#: The fills of other launches: also zero, which is least for an unsigned minimum.
FILLS = (*CHECKED_FILLS, Fill(0, 0x3A5B))
_ORDERS: dict[str, int] = {"forward": 0, "reverse": 1, "random": 2}


class EmulatorSession:
    """The runtime in the process that runs a solution.

    Loading it makes its symbols visible to every extension loaded later. It also makes torch fill
    new memory and guard it on both sides. Load it before the first tensor of the solution.
    From then on the runtime counts torch's operators that compute something.

    Args:
        libraries: The libraries to load.

    Raises:
        ToolchainError: The libraries cannot be loaded.
    """

    def __init__(self, libraries: RuntimeLibraries):
        import torch  # the second library needs libc10, which the loader finds once torch is loaded

        del torch
        try:
            self._core = ctypes.CDLL(str(libraries.core), mode=ctypes.RTLD_GLOBAL)
            self._torch = ctypes.CDLL(str(libraries.torch), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(
                f"The emulator's libraries cannot be loaded: {error}. Delete {libraries.core.parent} and try again."
            ) from error
        self._core.cuemu_set_order.argtypes = [ctypes.c_int, ctypes.c_ulonglong]
        self._core.cuemu_set_order.restype = None
        self._core.cuemu_set_checking.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint]
        self._core.cuemu_set_checking.restype = None
        self._core.cuemu_set_exhaustive.argtypes = [ctypes.c_int]
        self._core.cuemu_set_exhaustive.restype = None
        self._core.cuemu_set_limits.argtypes = [ctypes.c_int] * 3
        self._core.cuemu_set_limits.restype = None
        self._core.cuemu_know_tensor.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        self._core.cuemu_know_tensor.restype = None
        self._core.cuemu_forget_tensors.argtypes = []
        self._core.cuemu_forget_tensors.restype = None
        self._core.cuemu_take_reports.argtypes = []
        self._core.cuemu_take_reports.restype = ctypes.c_char_p
        self._core.cuemu_take_launches.argtypes = []
        self._core.cuemu_take_launches.restype = ctypes.c_char_p
        self._core.cuemu_take_threads.argtypes = []
        self._core.cuemu_take_threads.restype = ctypes.c_ulonglong
        self._torch.cuemu_watch_operators.argtypes = [ctypes.c_char_p]
        self._torch.cuemu_watch_operators.restype = None
        self._torch.cuemu_take_operators.argtypes = []
        self._torch.cuemu_take_operators.restype = ctypes.c_char_p
        self._torch.cuemu_watch_operators("".join(f"{name}\n" for name in sorted(IDLE)).encode())
        self._torch.cuemu_install_allocator.argtypes = []
        self._torch.cuemu_install_allocator.restype = None
        self._torch.cuemu_install_allocator()

    def set_thread_order(self, order: ThreadOrder, seed: int = 0) -> None:
        """Sets the order in which later launches run a block's threads and a grid's blocks.

        Args:
            order: ``forward``, ``reverse`` or ``random``.
            seed: The seed of the random order, taken modulo 2**64.

        Raises:
            ValueError: The order is none of these.
        """
        if order not in _ORDERS:
            raise ValueError(f"the thread order must be one of {', '.join(_ORDERS)}; got {order!r}")
        self._core.cuemu_set_order(_ORDERS[order], seed % 2**64)

    def set_checking(self, is_on: bool, fill: Fill = FILLS[0]) -> None:
        """Switches the checking of later launches, for kernels that were built to be checked.

        Args:
            is_on: Whether launches are checked.
            fill: What fills memory from now on.
        """
        self._core.cuemu_set_checking(int(is_on), *fill)

    def set_exhaustive(self, is_on: bool) -> None:
        """Switches the exploration of later checked launches: all orders of what synchronises threads.

        Args:
            is_on: Whether the first launch of each kernel and size is explored. Reports of kind ``explored`` and
                ``incomplete`` tell what came of it.
        """
        self._core.cuemu_set_exhaustive(int(is_on))

    def set_architecture(self, name: str) -> None:
        """Sets the limits of later launches and the device's properties.

        Args:
            name: One of ``architectures.ARCHITECTURES``.
        """
        chosen = ARCHITECTURES[name]
        self._core.cuemu_set_limits(chosen.shared_bytes, chosen.threads, chosen.shared_bytes_per_sm)

    def know(self, tensors: Mapping[str, Sequence[Tensor]], *, more: bool = False) -> None:
        """Registers tensors of the device that have new values.

        Args:
            tensors: Tensors, dense or expanded, by their names in reports. Those that torch's
                allocator did not create have a guard band around each.
            more: Whether earlier ones that torch's allocator did not create stay registered.
        """
        if not more:
            self._core.cuemu_forget_tensors()
        for name, own in tensors.items():
            for tensor in own:
                self._core.cuemu_know_tensor(tensor.data_ptr(), _spanned_bytes(tensor), name.encode())

    def take_reports(self) -> list[dict[str, Any]]:
        """Returns the faults that the runtime has seen since the last call, oldest first.

        Returns:
            Objects with ``kind``, ``kernel``, ``line``, ``message``, ``accesses`` and ``remedy``. A
            report with ``is_suspicion`` counts only if the result is wrong, too.
        """
        text = self._core.cuemu_take_reports()
        reports: list[dict[str, Any]] = json.loads(text.decode("utf-8")) if text else []
        return with_lines(reports)

    def take_launches(self) -> dict[str, int]:
        """Returns the launches of each kernel since the last call, in order of first launch."""
        launches: dict[str, int] = json.loads(self._core.cuemu_take_launches().decode("utf-8"))
        return launches

    def take_threads(self) -> int:
        """Returns the total number of threads of all launches since the last call."""
        return int(self._core.cuemu_take_threads())

    def take_operators(self) -> dict[str, tuple[int, int]]:
        """Returns torch's operators that computed something since the last call.

        They count whoever called them.

        Returns:
            For each operator, by its name in torch's schema, the number of runs and a number of
            elements. The elements are those of the largest tensor in each call, summed over calls.
            An operator that calls others counts no elements, only those others do.
        """
        told: dict[str, list[int]] = json.loads(self._torch.cuemu_take_operators().decode("utf-8"))
        return {name: (calls, elements) for name, (calls, elements) in told.items()}


def _spanned_bytes(tensor: Tensor) -> int:
    """Returns the bytes from a tensor's first element to the end of its last."""
    if not tensor.numel():
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()

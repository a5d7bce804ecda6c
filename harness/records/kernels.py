"""Records the kernels of a candidate: those that it launched, and those that nvcc compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KernelUse:
    """A kernel that one call launched, as reported by the candidate's process; no proof.

    Attributes:
        name: Name without arguments.
        calls: Number of launches.
        own: Whether a library that the candidate built contains it. Otherwise it belongs to torch
            or one of torch's libraries.
        device_ms: Total time on the device, without launches and gaps; None on the emulator.
    """

    name: str
    calls: int
    own: bool
    device_ms: float | None = None


@dataclass(frozen=True)
class CopyUse:
    """A kind of copy or fill in one call, as reported by the candidate's process; no proof.

    Attributes:
        name: Name in CUDA's profiler: ``Memcpy DtoD (Device -> Device)``, ``Memset (Device)``.
        calls: Number of copies or fills.
        device_ms: Their total time.
        bytes: Bytes that they moved in total; None if the profiler does not report them.
    """

    name: str
    calls: int
    device_ms: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel compiled for one architecture, with figures of ``ptxas -v``; it did not run.

    Attributes:
        name: Name without return type and arguments.
        arch: Architecture, such as ``sm_90``.
        registers: Registers of a thread.
        shared_bytes: Static shared memory of a block.
        stack_bytes: Stack frame of a thread, in local memory.
        spill_store_bytes: Bytes that a thread stores for lack of registers, counted once in the
            code.
        spill_load_bytes: Bytes that a thread loads back, counted in the same way.
        constant_bytes: Bytes that the source declares as ``__constant__``, for all kernels
            together; None if unknown.
    """

    name: str
    arch: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    constant_bytes: int | None

    @property
    def spilled_bytes(self) -> int:
        """Bytes that a thread stores and loads back for lack of registers."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True)
class KernelLimits:
    """The most that each compiled kernel of a candidate may take; None for no limit.

    Attributes:
        registers: Registers of a thread.
        shared_bytes: Static shared memory of a block.
        spilled_bytes: Bytes that a thread stores and loads back for lack of registers.
    """

    registers: int | None = None
    shared_bytes: int | None = None
    spilled_bytes: int | None = None

    def excess(self, kernels: Sequence[CompiledKernel]) -> str:
        """Returns in words what exceeds a limit; empty if nothing does."""
        for kernel in kernels:
            for name, most in vars(self).items():
                used = getattr(kernel, name)
                if most is not None and used > most:
                    return f"nvcc gives {kernel.name} {name}={used}, and the limit is {most}"
        return ""


@dataclass(frozen=True)
class Compilation:
    """nvcc's result for a candidate's CUDA sources on a machine where no GPU ran them.

    It is the report of the candidate's process.

    Attributes:
        arch: Requested architecture, such as ``sm_90``.
        compiler: Version of nvcc, such as ``13.0.88``; empty without nvcc.
        kernels: The compiled kernels, in the order of ptxas.
        error: Why some or all kernels are missing: the compiler's first errors with the solution's
            lines, or what the machine lacks. Empty if all sources compiled.
        seconds: Duration of nvcc.
    """

    arch: str
    compiler: str
    kernels: tuple[CompiledKernel, ...] = ()
    error: str = ""
    seconds: float = 0.0

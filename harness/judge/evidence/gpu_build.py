"""Checks whether a candidate that ran on the emulator would build for a GPU.

The candidate's process reports the result, so it is evidence and no proof. A compiler error at the
candidate's lines counts all the same: a process that invents one only loses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.compilation.nvcc import nvcc_release
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.faults import Faults, stop_for
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.records.kernels import Compilation, CompiledKernel
from harness.records.record import ERROR, REPORT, Finding, Status
from harness.system.text import MAX_NAME_CHARACTERS, shortened
from harness.wire.commands import Compile
from harness.wire.replies import Compiled

KIND = "build"
#: Limits on what an honest worker reports: kernels, characters of an error, characters of a log.
MAX_KERNELS, MAX_ERROR_CHARACTERS, MAX_LOG_CHARACTERS = 1000, 4000, 500_000
#: No GPU has more of anything. No compiler reports a larger or negative number.
MAX_FIGURE = 1 << 40


@dataclass(frozen=True)
class GpuBuild:
    """The result of compiling a candidate's sources for a GPU.

    Attributes:
        compilation: The entry for the record.
        finding: A finding beside the verdict, or against it.
        log: All that the compiler printed about a failure.
        is_over: Whether the worker is of no further use.
    """

    compilation: Compilation
    finding: Finding | None = None
    log: str = ""
    is_over: bool = False


def compiled_for_gpu(worker: WorkerHandle, arch: str, clock: Clock) -> GpuBuild:
    """Have the worker compile its sources for a GPU, confined as it is.

    Args:
        worker: The worker, which has run the candidate.
        arch: The architecture to compile for.
        clock: The seconds that compilers have.

    Raises:
        CandidateStopped: The worker broke the protocol.
    """
    version, why_not = nvcc_release()
    blank = Compilation(arch, version, error=why_not)
    if why_not:
        return GpuBuild(blank)
    try:
        reply = worker.request(Compile(arch), clock, "compiling for a GPU")
    except CandidateStopped as stop:
        if stop.status is Status.CHEATED:
            raise
        spent = replace(blank, error=stop.message, seconds=clock.build_s)
        return GpuBuild(spent, _finding(stop.message, None, None, REPORT), is_over=True)
    if not isinstance(reply, Compiled):
        end = stop_for(reply, Faults(is_checked=True))
        if end.status is Status.CHEATED:
            raise end
        return GpuBuild(replace(blank, error=end.message), _finding(end.message, None, None, REPORT))
    return _told(reply, blank)


def _told(reply: Compiled, blank: Compilation) -> GpuBuild:
    """Convert the worker's reply, which may contain anything."""
    error = shortened(reply.error, MAX_ERROR_CHARACTERS)
    kernels = tuple(kernel for kernel in map(_bounded, reply.kernels[:MAX_KERNELS]) if kernel is not None)
    compilation = replace(blank, kernels=kernels, error=error, seconds=min(max(0.0, reply.seconds), 1e6))
    if not reply.fault and not error:
        return GpuBuild(compilation)
    line = reply.line if reply.line is not None and 0 < reply.line <= MAX_FIGURE else None
    kernel = None if reply.kernel is None else shortened(reply.kernel, MAX_NAME_CHARACTERS)
    level = ERROR if reply.fault == "source" else REPORT
    return GpuBuild(compilation, _finding(error, kernel, line, level), reply.log[:MAX_LOG_CHARACTERS])


def _bounded(kernel: CompiledKernel) -> CompiledKernel | None:
    figures = [value for value in vars(kernel).values() if isinstance(value, int)]
    if not all(0 <= value <= MAX_FIGURE for value in figures):
        return None
    return replace(kernel, name=shortened(kernel.name, MAX_NAME_CHARACTERS), arch=shortened(kernel.arch, 20))


def _finding(words: str, kernel: str | None, line: int | None, level: str) -> Finding:
    first = words.splitlines()[0] if words.strip() else "unknown reason"
    if level == ERROR:
        remedy = "correct what nvcc refuses; the emulator accepts more than nvcc"
        return Finding(
            KIND,
            kernel=kernel,
            line=line,
            accesses=(),
            remedy=remedy,
            message=f"nvcc does not compile this: {first}",
            level=ERROR,
        )
    remedy = (
        "this does not count against the solution: `doctor` says what this machine lacks, or build it on "
        "another machine"
    )
    return Finding(
        KIND,
        kernel=kernel,
        line=line,
        accesses=(),
        remedy=remedy,
        message=f"nvcc did not compile this here: {first}",
        level=REPORT,
    )

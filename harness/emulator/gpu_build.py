"""Compiles a solution's sources with nvcc for a GPU that need not exist.

The result tells whether the sources build, and the registers and memory of the kernels. nvcc
generates only device code (``-cubin``), and nothing of it runs. torch's CUDA headers include those
of CUDA's libraries, which neither a CPU build of torch nor nvcc from PyPI has. So the emulator's
stand-ins replace those, with CUDA's real headers below them, unless the toolkit has the libraries'
headers.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.compilation.nvcc import cuda_home
from harness.compilation.old_torch import compat_flags, removed_names
from harness.compilation.ptxas import compiled_kernels, declared_constants
from harness.compilation.torch_headers import LEAN, SELECTION, needs_real_headers, selection, uses_torch_headers
from harness.emulator.compiler import INCLUDE_TORCH, find_compiler, python_include, torch_paths
from harness.emulator.diagnostics import SourceLocator
from harness.emulator.flags import TORCH_DEFINITIONS
from harness.emulator.nvcc_errors import MACHINE, NvccError, in_words, nvcc_errors
from harness.emulator.processes import FinishedProcess, run_together
from harness.emulator.sources import InlineSources, Unit, is_toolkit, nvcc_units
from harness.records.kernels import CompiledKernel
from harness.system.scratch import BUILDING_PREFIX, scratch_folder
from harness.wire.replies import Compiled

#: The number of parallel compilers. Each takes 1.5 GB to read the stand-in for torch/extension.h,
#: and twice that for torch's own header.
AT_ONCE = 4
#: Limits for the reply, which must fit into a message.
MAX_KERNELS, MAX_LOG_CHARACTERS = 1000, 500_000
#: The same flags as in ``torch.utils.cpp_extension``.
_TORCH_FLAGS = (*TORCH_DEFINITIONS, "--expt-relaxed-constexpr", "--compiler-options", "-fPIC")
_ARCHITECTURE = frozenset({"-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"})
#: Flags that change nvcc's kind of output or its place: first those with a value, then those
#: without.
_OUTPUT = frozenset({"-o", "--output-file", "-odir", "--output-directory", "-keep-dir", "--keep-dir"})
_PHASES = frozenset(
    {"-c", "--compile", "-dc", "--device-c", "-ptx", "--ptx", "-cubin", "--cubin", "-fatbin", "--fatbin", "-E"}
)
#: The headers that torch's ``ATen/cuda/CUDAContext.h`` includes.
_LIBRARY_HEADERS = ("cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")
_TORCH_NAMES = re.compile(r"\b(?:at|torch|c10|caffe2|ATen|pybind11|py)\b|\b(?:AT|TORCH|C10|PYBIND11)_")


@dataclass(frozen=True)
class _Job:
    """A translation unit with its sources and its folder."""

    sources: InlineSources
    unit: Unit
    folder: Path


def compile_for_gpu(
    given: Iterable[InlineSources],
    locator: SourceLocator,
    arch: str,
    out_dir: Path,
    on_build: Callable[[str, str], None],
    *,
    compat: bool = False,
) -> Compiled:
    """Compiles CUDA sources with nvcc.

    Args:
        given: The arguments of each build that the solution asked a loader for.
        locator: The locator of the solution's lines.
        arch: The architecture to compile for, such as ``sm_90``.
        out_dir: The folder for temporary files. Nothing stays there.
        on_build: A callback around the compilation. It receives ``"begin"`` or ``"end"``, and the
            extensions' names.
        compat: Whether code for an older torch may compile.

    Returns:
        The kernels, or the cause of the failure.

    Raises:
        ToolchainError: The headers of torch or Python are missing.
    """
    home = cuda_home()
    units = [(sources, unit) for sources in given for unit in nvcc_units(sources, locator)]
    if home is None or not units:
        return Compiled((), fault="", error="", line=None, kernel=None, log="", seconds=0.0)
    names = ", ".join(dict.fromkeys(sources.name for sources, _ in units))
    started = time.monotonic()
    on_build("begin", names)
    try:
        with scratch_folder(BUILDING_PREFIX, out_dir) as scratch:
            jobs = [_Job(sources, unit, scratch / str(number)) for number, (sources, unit) in enumerate(units)]
            build = _GpuBuild(home, arch, locator, scratch, compat)
            return build.outcome(jobs, build.run(jobs), started)
    except OSError as error:
        return Compiled(
            (),
            fault=MACHINE,
            error=f"nvcc could not be run: {error}",
            line=None,
            kernel=None,
            log="",
            seconds=time.monotonic() - started,
        )
    finally:
        on_build("end", names)


class _GpuBuild:
    """One compilation of all sources in a scratch folder."""

    def __init__(self, home: Path, arch: str, locator: SourceLocator, scratch: Path, compat: bool):
        self._home = home
        self._compat = compat
        self._arch = arch
        self._locator = locator
        self._scratch = scratch
        self._torch = torch_paths()

    def run(self, jobs: Sequence[_Job]) -> list[FinishedProcess]:
        """Runs nvcc on each job, and with ``compat`` again on those that code for an older torch fails."""
        for job in jobs:
            job.folder.mkdir()
        results = self._attempted(jobs, [])
        again = [at for at, result in enumerate(results) if self._compat and removed_names(result.output)]
        repeated = self._attempted([jobs[at] for at in again], compat_flags())
        return _replaced(results, again, repeated)

    def _attempted(self, jobs: Sequence[_Job], further: Sequence[str]) -> list[FinishedProcess]:
        """Runs nvcc on each job, and again with torch's own headers if the stand-ins may fail."""
        real = [needs_real_headers(job.unit.text, job.unit.names) for job in jobs]
        results = self._ended(jobs, real, further)
        again = [at for at, result in enumerate(results) if not real[at] and self._may_be_ours(jobs[at], result)]
        repeated = self._ended([jobs[at] for at in again], [True] * len(again), further)
        return _replaced(results, again, repeated)

    def _ended(self, jobs: Sequence[_Job], real: Sequence[bool], further: Sequence[str]) -> list[FinishedProcess]:
        commands = [self._command(job, is_real, further) for job, is_real in zip(jobs, real, strict=True)]
        most = min(AT_ONCE, os.cpu_count() or 1)
        batches = [commands[at : at + most] for at in range(0, len(commands), most)]
        return [result for batch in batches for result in run_together(batch, self._scratch)]

    def _may_be_ours(self, job: _Job, result: FinishedProcess) -> bool:
        """Tells whether the stand-ins for torch's headers may be the cause of a failure."""
        if result.status == 0 or not uses_torch_headers(job.unit.text):
            return False
        if self._compat and removed_names(result.output):
            return False
        return any(error.fault == MACHINE or _TORCH_NAMES.search(error.message) for error in self._errors(job, result))

    def _errors(self, job: _Job, result: FinishedProcess) -> list[NvccError]:
        own_files = [str(file.path) for file in job.sources.files]
        return nvcc_errors(result.output, self._locator, own_files, _intermediate(job))

    def outcome(self, jobs: Sequence[_Job], results: Sequence[FinishedProcess], started: float) -> Compiled:
        """Combines the results of all jobs and reports the first failure."""
        kernels: list[CompiledKernel] = []
        failed: list[tuple[list[NvccError], str]] = []
        for job, result in zip(jobs, results, strict=True):
            if result.status != 0:
                failed.append((self._errors(job, result), result.output))
                continue
            cubin = _cubin(job)
            constants = declared_constants(cubin.read_bytes()) if cubin.is_file() else None
            kernels += compiled_kernels(result.output, constants)
        seconds = time.monotonic() - started
        if not failed:
            return Compiled(
                tuple(kernels[:MAX_KERNELS]), fault="", error="", line=None, kernel=None, log="", seconds=seconds
            )
        # A mistake in a source counts more than something that this machine lacks.
        errors, log = min(failed, key=lambda one: one[0][0].fault == MACHINE)
        first = errors[0]
        is_own_line = first.place is not None and first.place.file == self._locator.path
        line = first.place.line if first.place is not None and is_own_line else None
        words = in_words(errors, self._locator)
        told = tuple(kernels[:MAX_KERNELS])
        return Compiled(
            told,
            fault=first.fault,
            error=words,
            line=line,
            kernel=first.kernel,
            log=log[:MAX_LOG_CHARACTERS],
            seconds=seconds,
        )

    def _command(self, job: _Job, real: bool, further: Sequence[str]) -> list[str]:
        source = job.folder / job.unit.file_name
        source.write_text(job.unit.text, encoding="utf-8", errors="surrogateescape")
        flags, arch = _nvcc_flags(job.sources.extra_cuda_cflags, self._arch)
        command = [str(self._home / "bin" / "nvcc"), "-cubin", f"-arch={arch}", "-Xptxas", "-v", "-lineinfo"]
        command += ["--keep", "--keep-dir", str(job.folder), *self._host_compiler(), *_TORCH_FLAGS]
        command += self._includes(job, real)
        command += [f"-DTORCH_EXTENSION_NAME={job.sources.name}", "-DTORCH_API_INCLUDE_EXTENSION_H", *flags, *further]
        if not any(flag.startswith(("-std", "--std")) for flag in flags):
            command.append("-std=c++20")
        return [*command, str(source), "-o", str(_cubin(job))]

    @staticmethod
    def _host_compiler() -> list[str]:
        """Returns the flag for the host compiler, which is the emulator's own.

        nvcc takes only a program, without arguments.
        """
        command = find_compiler().command
        return ["-ccbin", command[0]] if len(command) == 1 else []

    def _includes(self, job: _Job, real: bool) -> list[str]:
        flags = [f"-I{path}" for path in job.sources.extra_include_paths if not is_toolkit(path)]
        if job.unit.folder is not None:
            flags.append(f"-I{job.unit.folder}")
        has_libraries = all((self._home / "include" / header).is_file() for header in _LIBRARY_HEADERS)
        if not (real and has_libraries):
            flags.append(f"-I{INCLUDE_TORCH / 'cuda'}")
        if not real and uses_torch_headers(job.unit.text):
            folder = job.folder / "select"
            folder.mkdir(exist_ok=True)
            (folder / SELECTION).write_text(selection(job.unit.names, self._torch.root), encoding="utf-8")
            flags += [f"-I{folder}", f"-I{LEAN}"]
        if not (self._torch.root / "include" / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h").is_file():
            flags.append(f"-I{INCLUDE_TORCH / 'missing'}")
        for flag in self._torch.include_flags:
            flags += ["-isystem", flag.removeprefix("-I")]
        return [*flags, "-isystem", str(python_include())]


def _replaced(
    results: Sequence[FinishedProcess], places: Sequence[int], by: Sequence[FinishedProcess]
) -> list[FinishedProcess]:
    """Returns results with those at some places replaced."""
    new = dict(zip(places, by, strict=True))
    return [new.get(at, result) for at, result in enumerate(results)]


def _cubin(job: _Job) -> Path:
    return job.folder / f"{job.unit.file_name}.cubin"


def _intermediate(job: _Job) -> Path:
    """Returns the path where ``--keep`` leaves the input of ptxas."""
    return job.folder / Path(job.unit.file_name).with_suffix(".ptx").name


def _nvcc_flags(given: Sequence[str], arch: str) -> tuple[list[str], str]:
    """Returns the solution's flags without those for architecture and output, and the architecture.

    If a solution names a variant of the wanted architecture (``sm_90a``), nvcc compiles for that
    variant, as it would on such a GPU.

    Args:
        given: The solution's ``extra_cuda_cflags``. One string may hold several flags.
        arch: The wanted architecture, such as ``sm_90``.
    """
    kept: list[str] = []
    waiting = [word for flag in given for word in _words(flag)]
    while waiting:
        word = waiting.pop(0)
        name, _, value = word.partition("=")
        if name in _ARCHITECTURE | _OUTPUT:
            value = value if "=" in word else (waiting.pop(0) if waiting else "")
            variant = re.search(rf"(?:sm|compute)_({re.escape(arch.removeprefix('sm_'))}[af])\b", value)
            arch = f"sm_{variant[1]}" if variant and name in _ARCHITECTURE else arch
        elif word in ("-dc", "--device-c"):
            kept.append("-rdc=true")
        elif word not in _PHASES:
            kept.append(word)
    return kept, arch


def _words(flag: str) -> list[str]:
    """Splits a flag as the shell does, since torch passes all flags through the shell."""
    try:
        return shlex.split(flag)
    except ValueError:
        return flag.split()

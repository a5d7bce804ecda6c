"""Runs Nsight Compute on a solution and explains its failures.

The solution runs unconfined, as the user, because the worker's confinement blocks the counters.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import package
from harness.compilation.cache import BuildCache
from harness.errors import EXIT_NOT_PASSED, EXIT_USAGE, DeviceError, HarnessError, ProblemError, ToolchainError
from harness.judge.process.time_limits import Limits
from harness.profiling.figures import METRICS, KernelFigures, marked, parsed
from harness.project.solutions import Candidate
from harness.system.scratch import scratch_folder
from harness.system.text import kernel_name, one_line, printable, shortened
from harness.wire.values import UnsupportedValue, encode_plain

#: Places of the program besides PATH. Of several packages, the newest version counts.
TOOLKIT = Path("/usr/local/cuda/bin/ncu")
PACKAGES = Path("/opt/nvidia/nsight-compute")
#: Slowdown under the profiler, which runs every kernel in several passes and restores memory
#: between.
SLOWER = 10
#: Maximum number of characters of a program's output to report.
MAX_SAID = 2000
_MISSING = (
    "--ncu: Nsight Compute (ncu) is neither on PATH nor in /usr/local/cuda/bin or "
    "/opt/nvidia/nsight-compute. It is part of the CUDA toolkit; to install it alone, see "
    "https://developer.nvidia.com/tools-overview/nsight-compute/get-started or run `conda install -c nvidia "
    "nsight-compute`"
)
_NOT_PERMITTED = (
    "the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM): run as root, in a container with "
    "--cap-add=SYS_ADMIN, or have an administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0; see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)


class TargetFailed(HarnessError):
    """The solution did not run."""

    exit_code = EXIT_NOT_PASSED


@dataclass(frozen=True)
class Target:
    """A solution to run under Nsight Compute.

    Attributes:
        candidate: The solution.
        constants: Constants of the case.
        device: ``cuda:N``.
        limits: Seconds that it may run and build.
        home: ``HARNESS_HOME``, whose existing builds are reused.
    """

    candidate: Candidate
    constants: dict[str, Any]
    device: str
    limits: Limits
    home: Path


def find_ncu() -> Path:
    """Locates the program ``ncu``.

    Raises:
        ToolchainError: It is not installed.
    """
    on_path = shutil.which("ncu")
    packages = sorted(PACKAGES.glob("*/ncu"), key=lambda path: _version(path.parent.name), reverse=True)
    for path in (*([Path(on_path)] if on_path else []), TOOLKIT, *packages):
        if os.access(path, os.X_OK) and path.is_file():
            return path
    raise ToolchainError(_MISSING)


def measured(target: Target, ncu: Path) -> list[KernelFigures]:
    """Runs a solution alone, which builds and tests it, and then under Nsight Compute.

    Returns:
        The kernels of one forward, and of one forward with its backward, merged by name.

    Raises:
        ProblemError: The problem does not run, or a constant cannot be passed to another process.
        TargetFailed: The solution does not build or run, or takes too long.
        DeviceError: The driver does not allow reading the counters.
        ToolchainError: Nsight Compute failed, or saw no kernel.
    """
    from harness.worker.profiling import is_defined

    problem, limits = target.candidate.problem, target.limits
    try:
        constants = encode_plain(target.constants)
    except UnsupportedValue as error:
        raise ProblemError(f"{problem.path}: the case's constants: {error}") from None
    with scratch_folder("harness-profile-") as folder:
        for key, path in BuildCache(target.home / "builds").libraries(target.candidate.solution.digest).items():
            shutil.copyfile(path, folder / f"{key}.so")
        program = [
            *(sys.executable, "-m", "harness.profiling.target", str(target.candidate.solution.path)),
            *(str(problem.path.resolve()), constants, target.device, str(folder)),
        ]
        alone = _run(program, folder, limits.build_s + limits.run_s)
        if alone.code != 0:
            raise _failed(alone)
        log = folder / "ncu.log"
        watched = _run(command(ncu, log, program), folder, SLOWER * limits.run_s)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        found = parsed(text, kernel_name)
        refusal = refused(watched.code, f"{text}\n{watched.said}", bool(found))
        if refusal is not None:
            raise refusal
        libraries = [path.read_bytes() for path in folder.glob("*.so")]
        return marked(found, lambda kernel: is_defined(kernel, libraries))


def command(ncu: Path, log: Path, program: Sequence[str]) -> list[str]:
    """Returns the command line that profiles a program between ``cudaProfilerStart`` and ``Stop``.

    Args:
        ncu: Path of Nsight Compute.
        log: File for its own lines and the CSV, without the program's output.
        program: Command line of the program.
    """
    return [
        *(str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--metrics", ",".join(METRICS), "--clock-control", "none"),
        *("--target-processes", "all", "--profile-from-start", "off"),
        *program,
    ]


def refused(code: int | None, said: str, found: bool) -> HarnessError | None:
    """Explains a failed run of Nsight Compute; returns None for a good run.

    Args:
        code: Its exit code; None after a timeout.
        said: Output of it and of the program.
        found: Whether the output contains a kernel.
    """
    if "ERR_NVGPUCTRPERM" in said:
        return DeviceError(_NOT_PERMITTED)
    if code is None:
        return TargetFailed(
            f"profiling took longer than {SLOWER} times --timeout: raise --timeout, or choose a smaller case "
            "with --case or --set"
        )
    if code != 0:
        errors = [line for line in said.splitlines() if line.startswith("==ERROR==")]
        words = "; ".join(line.removeprefix("==ERROR==").strip() for line in errors) or _tail(said)
        return ToolchainError(f"ncu {_ended(code)}: {shortened(one_line(words), MAX_SAID)}")
    if not found:
        return ToolchainError(
            "ncu recorded no kernel: the solution launches none on the GPU, or this driver needs another "
            "version of ncu (`ncu --version`)"
        )
    return None


@dataclass(frozen=True)
class _Ran:
    """A finished program: its exit code, None after a timeout, and its output."""

    code: int | None
    said: str


def _run(arguments: Sequence[str], folder: Path, limit_s: float) -> _Ran:
    """Runs a program in a session of its own and then ends the whole session."""
    said = folder / "said.txt"
    with said.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=_environment(os.environ, folder),
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing is left of the group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return _Ran(code, said.read_text(encoding="utf-8", errors="replace"))


def _environment(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    paths = filter(None, [str(package.FOLDER.parent), inherited.get("PYTHONPATH")])
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
        "TMPDIR": str(folder),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }


def _failed(ran: _Ran) -> HarnessError:
    """Explains why the solution did not run alone."""
    if ran.code is None:
        return TargetFailed("the solution did not build and run within --build-timeout and --timeout")
    if ran.code == EXIT_USAGE:
        return ProblemError(_tail(ran.said))
    return TargetFailed(f"the solution does not run outside the judge ({_ended(ran.code)}):\n{_tail(ran.said)}")


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {next((one.name for one in signal.Signals if one == -code), f'signal {-code}')}"


def _tail(said: str) -> str:
    """Returns the end of a program's output."""
    return printable(said.strip()[-MAX_SAID:])


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name))

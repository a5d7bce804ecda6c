"""``profile``: shows which kernels one call of a solution launches, and for how long."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import click
from tqdm import tqdm

from harness.commands.run_outcome import exit_code
from harness.errors import EXIT_PASSED, DeviceError, UsageError
from harness.executors.plan import CaseChoice, Planner
from harness.judge.process.time_limits import Limits
from harness.project.cases import parse_settings
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.project.solutions import Candidate, select
from harness.records.json_values import plain
from harness.records.record import Status
from harness.system.interrupts import unwinding
from harness.system.text import one_line, printable


@click.command("profile")
@click.argument("solution")
@click.option("--problem", help="The problem (name or file) that SOLUTION solves if it is a file.")
@option("device")
@click.option("--case", help="The case to run. [default: full on a GPU, the smallest that fits on the CPU]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="Replace a constant of the problem. Makes a new case.",
)
@click.option(
    "--ncu",
    "counted",
    is_flag=True,
    help="Read the GPU's counters with Nsight Compute. The solution runs UNCONFINED, as you, and is not judged.",
)
@option("timeout")
@option("build-timeout")
@option("root")
@option("home")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
def command(
    *,
    solution: str,
    problem: str | None,
    device: str,
    case: str | None,
    settings: tuple[str, ...],
    counted: bool,
    timeout: float,
    build_timeout: float,
    root: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Show which kernels SOLUTION launches, and for how long.

    The figures are for one call, forward and backward.

    SOLUTION is problem/variant or the path of a solution file. `profile` first judges it in one
    trial, confined as under `evaluate`. A solution that does not pass has no profile. `profile`
    stores nothing.

    With --ncu the command reads the GPU's own counters instead: memory throughput, occupancy, cache
    hits, and the stalls of warps. That needs Nsight Compute, the right to read counters, and a
    solution that you trust. The solution runs unconfined, with all your rights.

    \b
    Examples:
      python -m harness profile group_norm/fused
      python -m harness profile answer.py --problem group_norm --case odd --json
      python -m harness profile group_norm/fused --device cuda:0 --ncu
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if case is not None and settings:
        raise UsageError("--case and --set cannot be used together: --set makes a new case")
    constants = parse_settings(settings)
    candidates = select(project_root(root), (solution,), problem)
    if len(candidates) != 1:
        names = ", ".join(one_line(candidate.solution.name) for candidate in candidates)
        raise UsageError(f"{solution!r} names {len(candidates)} solutions; name one of them: {names}")
    choice = CaseChoice((case,) if case is not None else (), constants, is_main=True)
    task = ProfileTask(candidates[0], choice, Limits(timeout, build_timeout), harness_home(home))
    return _count(task, device, as_json) if counted else _profile(task, device, as_json)


@dataclass(frozen=True)
class ProfileTask:
    """A solution to profile.

    Attributes:
        candidate: The solution and its problem.
        choice: The choice of cases, at most one.
        limits: The timeouts in seconds for running and building.
        home: ``HARNESS_HOME``.
    """

    candidate: Candidate
    choice: CaseChoice
    limits: Limits
    home: Path


def _profile(task: ProfileTask, wanted_device: str, as_json: bool) -> int:
    """Judges a solution in one trial and prints the kernels that it launches."""
    from harness.executors.single_run import judged, lane_alone
    from harness.judge.policy import Policy, new_secret
    from harness.report.profile import print_profile, profile_object

    with (
        tqdm(total=0, file=sys.stderr, disable=None, bar_format="{desc}", leave=False) as bar,
        lane_alone(wanted_device, task.home, is_timed=False) as lane,
    ):
        job = Planner(task.choice, lane.device == "cpu").job(task.candidate)
        policy = Policy(lane.device, new_secret(), task.limits)
        record = judged(lane, job, policy, trials=1, progress=bar.set_description_str)
    passed = record.status is Status.PASSED
    if passed and not record.kernels:
        raise DeviceError(
            f"torch's profiler recorded no kernel on {record.device}: CUPTI is missing, or another profiler is using it"
        )
    if as_json:
        print(json.dumps(plain(profile_object(record)), allow_nan=False))
    elif passed:
        print_profile(record)
    else:
        print(f"{one_line(record.solution)} {record.case}: {record.status}, so it has no profile")
        print(printable(record.message))
    return exit_code([record.status], bad_problem=False)


def _count(task: ProfileTask, wanted_device: str, as_json: bool) -> int:
    """Reads the GPU's counters for a solution and prints them."""
    from harness.device import devices
    from harness.profiling.ncu import Target, find_ncu, measured
    from harness.report.profile import figures_object, print_figures

    refusal = (
        "--ncu needs a GPU, and the CPU emulator has no hardware counters; leave it out, or choose a GPU with --device"
    )
    if devices.guess(wanted_device) == "cpu":
        raise UsageError(refusal)
    ncu = find_ncu()
    device = str(devices.choose(wanted_device))
    if device == "cpu":
        raise UsageError(refusal)
    candidate = task.candidate
    cases = Planner(task.choice, on_cpu=False).cases(candidate.problem) or tuple(candidate.problem.cases.items())
    ((case, constants),) = cases
    print(f"{one_line(candidate.solution.name)} runs unconfined, as you, under {ncu}", file=sys.stderr)
    with unwinding():
        kernels = measured(Target(candidate, constants, device, task.limits, task.home), ncu)
    if as_json:
        print(json.dumps(plain(figures_object(kernels, candidate, case, constants, device)), allow_nan=False))
    else:
        print_figures(kernels, candidate.solution.name, case, device)
    return EXIT_PASSED

"""``profile``: shows which kernels one call of a solution launches, and for how long."""

from __future__ import annotations

import dataclasses
import json
import sys

import click
from tqdm import tqdm

from harness.commands.run_outcome import exit_code
from harness.errors import EXIT_PASSED, DeviceError, UsageError
from harness.executors.plan import CaseChoice
from harness.executors.single_run import SingleRunTask, chosen_case, judged_once
from harness.judge.process.clocks import Limits
from harness.project.cases import parse_settings
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.project.solutions import select
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
    choice = CaseChoice((case,) if case is not None else (), constants)
    task = SingleRunTask(candidates[0], choice, Limits(timeout, build_timeout), harness_home(home))
    return _count(task, device, as_json) if counted else _profile(task, device, as_json)


def _profile(task: SingleRunTask, wanted_device: str, as_json: bool) -> int:
    """Judges a solution and prints the kernels that it launches."""
    from harness.report.profile import print_profile, profile_object

    with tqdm(total=0, file=sys.stderr, disable=None, bar_format="{desc}", leave=False) as bar:
        record = judged_once(dataclasses.replace(task, progress=bar.set_description_str), wanted_device)
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


def _count(task: SingleRunTask, wanted_device: str, as_json: bool) -> int:
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
    case = chosen_case(candidate.problem, task.choice, on_cpu=False)
    print(f"{one_line(candidate.solution.name)} runs unconfined, as you, under {ncu}", file=sys.stderr)
    with unwinding():
        kernels = measured(Target(candidate, case.constants, device, task.limits, task.home), ncu)
    if as_json:
        print(json.dumps(plain(figures_object(kernels, candidate, case.name, case.constants, device)), allow_nan=False))
    else:
        print_figures(kernels, candidate.solution.name, case.name, device)
    return EXIT_PASSED

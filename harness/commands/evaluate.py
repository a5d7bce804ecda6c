"""``evaluate``: build, run and judge solutions against their problems."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from harness.errors import EXIT_HARNESS, EXIT_NOT_PASSED, EXIT_PASSED, EXIT_USAGE, ProblemError, UsageError
from harness.problems import CUSTOM_CASE, parse_setting
from harness.records import EvaluationRecord, Status
from harness.solutions import Candidate, select


@click.command("evaluate")
@click.argument("selectors", nargs=-1)
@click.option("--problem", help="Problem (name or file) that files named as selectors are to solve.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu (the CUDA emulator), cuda or cuda:N.")
@click.option("--case", "cases", multiple=True, help="Only this case; repeatable. [default: all that fit the device]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="Replace a constant of the problem; makes one case of its own.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds a candidate may run on one case.",
)
@click.option(
    "--build-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds a candidate's builds may take.",
)
@click.option("--forward-only", is_flag=True, help="Judge outputs alone, no gradients.")
@click.option("--seed", help="Secret of an earlier run (hex), to repeat its draws. [default: a fresh one]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per candidate and case on stdout, no table.")
def command(
    selectors: tuple[str, ...],
    problem: str | None,
    device: str,
    cases: tuple[str, ...],
    settings: tuple[str, ...],
    timeout: float,
    build_timeout: float,
    forward_only: bool,
    seed: str | None,
    as_json: bool,
) -> int:
    """Build, run and judge solutions against their problems.

    SELECTORS are problems, problem/variant, or paths of solution files; none means every solution there is.

    \b
    Examples:
      python -m harness evaluate
      python -m harness evaluate group_norm/fused --case odd
      python -m harness evaluate answer.py --problem group_norm --set batch_size=2 --json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.paths import project_root

    if cases and settings:
        raise UsageError("--case and --set exclude each other: --set makes a case of its own")
    if seed is not None and (not seed or set(seed) - set("0123456789abcdef")):
        raise UsageError(f"--seed {seed!r}: give the hex digits of a record's seed")
    candidates = select(project_root(), selectors, problem)
    constants = dict(parse_setting(text) for text in settings)
    return _evaluate(candidates, device, cases, constants, timeout, build_timeout, forward_only, seed, as_json)


def _evaluate(
    candidates: list[Candidate],
    wanted_device: str,
    cases: tuple[str, ...],
    constants: dict[str, Any],
    timeout: float,
    build_timeout: float,
    forward_only: bool,
    seed: str | None,
    as_json: bool,
) -> int:
    from harness import devices
    from harness.build.cache import BuildCache
    from harness.executors import local
    from harness.judge.draws import new_secret
    from harness.judge.evaluation import Policy
    from harness.judge.fitting import available_memory
    from harness.paths import harness_home
    from harness.report.table import print_table

    device = devices.choose(wanted_device)
    jobs, bad_problem = _jobs(candidates, cases, constants, device.type == "cpu")
    home = harness_home()
    surroundings = _surroundings(device.type, home, BuildCache(home / "builds"))
    memory = available_memory() // 2
    policy = Policy(str(device), seed or new_secret(), timeout, build_timeout, forward_only, memory)
    records: list[EvaluationRecord] = []
    total = sum(len(job.cases) for job in jobs)
    with tqdm(total=total, file=sys.stderr, disable=None, unit="case", leave=False) as bar:
        for outcome in local.run(jobs, policy, surroundings, bar.set_description_str):
            bar.update()
            if isinstance(outcome, ProblemError):
                bad_problem = True
                tqdm.write(f"error: {outcome}", file=sys.stderr)
                continue
            records.append(outcome)
            if as_json:
                print(outcome.to_json(), flush=True)
    if not as_json and records:
        print_table(records)
    return exit_code(records, bad_problem)


def _surroundings(device_type: str, home: Path, cache: Any) -> Any:
    """What workers need on a device: the emulator's runtime on the CPU, nvcc on a GPU.

    Raises:
        ToolchainError: A compiler is missing.
    """
    from harness import environment
    from harness.judge.evaluation import Surroundings

    if device_type == "cpu":
        from harness.emulator.toolchain import build_runtime, find_compiler

        compiler = find_compiler()
        libraries = build_runtime(home / "emulator")
        paths = {"core": str(libraries.core), "torch": str(libraries.torch)}
        return Surroundings(cache, home / "logs", paths, environment.describe(compiler.version))
    from harness.build.cuda import nvcc_version

    return Surroundings(cache, home / "logs", {}, environment.describe(nvcc_version()) | environment.describe_gpu())


def _jobs(
    candidates: list[Candidate], cases: tuple[str, ...], constants: dict[str, Any], on_cpu: bool
) -> tuple[list[Any], bool]:
    """The candidates with their cases; and whether a problem turned out bad on the way."""
    from harness.executors.local import Job

    chosen: dict[Path, tuple[tuple[str, dict[str, Any]], ...]] = {}
    bad_problem = False
    jobs = []
    for candidate in candidates:
        problem = candidate.problem
        if problem.path not in chosen:
            try:
                if constants:
                    problem.check_constants(constants, "--set")
                    chosen[problem.path] = ((CUSTOM_CASE, constants),)
                elif cases:
                    chosen[problem.path] = tuple((name, problem.case(name)) for name in cases)
                elif on_cpu:
                    chosen[problem.path] = _fitting(candidate)
                else:
                    chosen[problem.path] = tuple(problem.cases.items())
            except ProblemError as error:
                bad_problem = True
                chosen[problem.path] = ()
                print(f"error: {error}", file=sys.stderr)
        if chosen[problem.path]:
            jobs.append(Job(candidate, chosen[problem.path]))
    return jobs, bad_problem


def _fitting(candidate: Candidate) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Every case of a problem that fits the CPU; what is left out is said on stderr."""
    from harness.judge.fitting import available_memory, size_of, why_not

    problem = candidate.problem
    kept = []
    for name, constants in problem.cases.items():
        reason = why_not(size_of(problem, constants), available_memory())
        if reason is None:
            kept.append((name, constants))
        else:
            print(
                f"{problem.name}: case {name!r} is left out on the CPU: {reason}; force it with --case {name}",
                file=sys.stderr,
            )
    return tuple(kept)


def exit_code(records: list[EvaluationRecord], bad_problem: bool) -> int:
    """The program's exit code: a bad problem before a failed harness before a candidate that did not pass."""
    if bad_problem:
        return EXIT_USAGE
    if any(record.status is Status.HARNESS_ERROR for record in records):
        return EXIT_HARNESS
    if any(record.status is not Status.PASSED for record in records):
        return EXIT_NOT_PASSED
    return EXIT_PASSED

"""``evaluate``: build, run and judge solutions against their problems."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from harness.errors import (
    EXIT_HARNESS,
    EXIT_NOT_PASSED,
    EXIT_PASSED,
    EXIT_USAGE,
    ProblemError,
    ToolchainError,
    UsageError,
)
from harness.executors.plan import Choice, plan
from harness.judge.handle import Limits
from harness.paths import harness_home, project_root
from harness.problems import parse_setting
from harness.records import EvaluationRecord, Status
from harness.settings import option
from harness.solutions import Candidate, select

if TYPE_CHECKING:
    from harness.judge.evaluation import Policy, Surroundings
    from harness.judge.handle import Workers


@click.command("evaluate")
@click.argument("selectors", nargs=-1)
@click.option("--problem", help="Problem (name or file) that files named as selectors are to solve.")
@option("device")
@click.option("--case", "cases", multiple=True, help="Only this case; repeatable. [default: all that fit the device]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="Replace a constant of the problem; makes one case of its own.",
)
@option("timeout")
@option("build-timeout")
@option("fail-below")
@option("root")
@option("home")
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
    fail_below: float | None,
    root: str | None,
    home: str | None,
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
    if cases and settings:
        raise UsageError("--case and --set exclude each other: --set makes a case of its own")
    if seed is not None and (not seed or set(seed) - set("0123456789abcdef")):
        raise UsageError(f"--seed {seed!r}: give the hex digits of a record's seed")
    candidates = select(project_root(root), selectors, problem)
    constants = dict(parse_setting(text) for text in settings)
    choice = Choice(cases, constants)
    limits = Limits(timeout, build_timeout)
    return _evaluate(candidates, choice, limits, device, harness_home(home), forward_only, seed, as_json)


def _evaluate(
    candidates: list[Candidate],
    choice: Choice,
    limits: Limits,
    wanted_device: str,
    home: Path,
    forward_only: bool,
    seed: str | None,
    as_json: bool,
) -> int:
    from harness import devices
    from harness.executors.tools import tools_for
    from harness.judge.handle import Workers
    from harness.memory import available_memory

    likely = devices.guess(wanted_device)
    try:
        tools = tools_for(likely, home)
    except ToolchainError:
        likely = str(devices.choose(wanted_device))  # a driver without a torch for it: not this device after all
        tools = tools_for(likely, home)
    # Workers import torch while this process does; so they start first, on the device that is most likely meant.
    with contextlib.ExitStack() as stack:
        workers = stack.enter_context(contextlib.closing(Workers(likely, tools.libraries, available_memory() // 2)))
        rivals = stack.enter_context(contextlib.closing(Workers(likely, tools.libraries, None)))
        workers.start_ahead()
        if likely != "cpu":
            rivals.start_ahead()
        device = str(devices.choose(wanted_device))
        if device == likely:
            from harness.judge.draws import new_secret
            from harness.judge.evaluation import Policy, Surroundings

            surroundings = Surroundings.of_this_machine(home, tools.compiler, device)
            policy = Policy(device, seed or new_secret(), limits, forward_only)
            return _judge(candidates, choice, policy, surroundings, workers, rivals, as_json)
    return _evaluate(candidates, choice, limits, device, home, forward_only, seed, as_json)


def _judge(
    candidates: list[Candidate],
    choice: Choice,
    policy: Policy,
    surroundings: Surroundings,
    workers: Workers,
    rivals: Workers,
    as_json: bool,
) -> int:
    from harness.executors import local
    from harness.judge.baseline import Baseline
    from harness.report.table import print_table

    jobs, bad_problem = plan(candidates, choice, policy.device == "cpu")
    records: list[EvaluationRecord] = []
    total = sum(len(job.cases) for job in jobs)
    with contextlib.ExitStack() as stack:
        baseline = None
        if policy.device != "cpu":
            baseline = stack.enter_context(contextlib.closing(Baseline(rivals)))
        if not as_json:
            stack.callback(print_table, records)  # also of what is finished when the run is interrupted
        bar = stack.enter_context(tqdm(total=total, file=sys.stderr, disable=None, unit="case", leave=False))
        for outcome in local.run(jobs, policy, surroundings, workers, baseline, bar.set_description_str):
            bar.update()
            if isinstance(outcome, ProblemError):
                bad_problem = True
                tqdm.write(f"error: {outcome}", file=sys.stderr)
                continue
            records.append(outcome)
            if as_json:
                print(outcome.to_json(), flush=True)
    return exit_code(records, bad_problem)


def exit_code(records: list[EvaluationRecord], bad_problem: bool) -> int:
    """The program's exit code: a bad problem before a failed harness before a candidate that did not pass.

    Where nothing was judged nothing has passed: that is wrong usage.
    """
    if bad_problem or not records:
        return EXIT_USAGE
    if any(record.status is Status.HARNESS_ERROR for record in records):
        return EXIT_HARNESS
    if any(record.status is not Status.PASSED for record in records):
        return EXIT_NOT_PASSED
    return EXIT_PASSED

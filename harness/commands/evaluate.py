"""``evaluate``: build, run and judge solutions against their problems."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from tqdm import tqdm

from harness import baselines
from harness.emulator import architectures
from harness.emulator.architectures import ARCHITECTURES
from harness.errors import (
    EXIT_HARNESS,
    EXIT_NOT_PASSED,
    EXIT_PASSED,
    EXIT_USAGE,
    HarnessError,
    ProblemError,
    UsageError,
)
from harness.executors.ledger import Ledger
from harness.executors.plan import Choice, plan
from harness.interrupts import unwinding
from harness.judge.handle import Limits
from harness.paths import harness_home, project_root
from harness.problems import parse_settings
from harness.records import EvaluationRecord, Status
from harness.rules import REPORTED, refused
from harness.settings import option
from harness.solutions import Candidate, select
from harness.store import Store, new_run_name
from harness.streams import results_alone
from harness.text import one_line, printable

CHECK_HELP = """Check every access of solutions' kernels on the CPU emulator, and judge their outputs there.

    Names races, accesses out of bounds, uninitialised or misaligned, divergence, deadlocks, wrong masks, launches
    beyond the limits of --arch and indices that overflow, each with its line and threads. SELECTORS are those of
    `evaluate`; this is `evaluate --check`.

    \b
    Examples:
      python -m harness check group_norm/fused
      python -m harness check answer.py --problem group_norm --case odd --arch sm_86 --json
    """


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
@click.option(
    "--baseline",
    "rivals",
    multiple=True,
    metavar="NAME",
    help=f"Time against this one, too: {', '.join(baselines.BASELINES)}; repeatable. [default: eager]",
)
@click.option("--fresh", is_flag=True, help="Judge again what the store has an answer for.")
@option("root")
@option("home")
@click.option("--forward-only", is_flag=True, help="Judge outputs alone, no gradients.")
@click.option("--no-timing", is_flag=True, help="Judge results alone, and measure no speed on a GPU.")
@click.option(
    "--precision",
    type=click.Choice(["strict", "relaxed"]),
    default="strict",
    show_default=True,
    help="How exact results must be: as the problem's precision class demands, or to 1e-4 (half precision: 1e-2).",
)
@click.option(
    "--refuse",
    "refusals",
    multiple=True,
    metavar="RULE",
    help=f"Enforce a rule that is only reported: {', '.join(REPORTED)}; repeatable.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check every access of the kernels, on the emulator, and compile them with nvcc where there is one.",
)
@click.option(
    "--arch",
    type=click.Choice(list(ARCHITECTURES)),
    help=f"Whose limits --check holds launches to, and what it compiles for. [default: {architectures.DEFAULT}]",
)
@click.option("--require-confinement", is_flag=True, help="Run nothing that is not confined in full; see `doctor`.")
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
    rivals: tuple[str, ...],
    fresh: bool,
    root: str | None,
    home: str | None,
    forward_only: bool,
    no_timing: bool,
    require_confinement: bool,
    precision: str,
    refusals: tuple[str, ...],
    check: bool,
    arch: str | None,
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
      python -m harness evaluate --device cuda:0 --fail-below 1.2 --fresh
      python -m harness evaluate group_norm --check

    Every finished evaluation is in the store before it is shown; the same one asked again is answered from there.
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if cases and settings:
        raise UsageError("--case and --set exclude each other: --set makes a case of its own")
    if seed is not None and (not seed or set(seed) - set("0123456789abcdef")):
        raise UsageError(f"--seed {seed!r}: give the hex digits of a record's seed")
    if arch and not check:
        raise UsageError("--arch goes with --check: it says whose limits launches are held to")
    if check and device not in ("auto", "cpu"):
        raise UsageError(f"--check runs on the CPU emulator, not on --device {device}; judge there without --check")
    for option_name, given in (("--fail-below", fail_below is not None), ("--baseline", bool(rivals))):
        if no_timing and given:
            raise UsageError(f"{option_name} and --no-timing exclude each other: it is about speed")
    constants = parse_settings(settings)
    baselines.chosen(rivals)
    candidates, has_bad_files = selected(root, selectors, problem)
    if not candidates:
        return EXIT_USAGE
    order = Order(
        candidates=candidates,
        choice=Choice(cases, constants),
        limits=Limits(timeout, build_timeout),
        home=harness_home(home),
        forward_only=forward_only,
        is_timed=not no_timing,
        require_confinement=require_confinement,
        is_relaxed=precision == "relaxed",
        refused=refused(refusals),
        check=(arch or architectures.DEFAULT) if check else "",
        baselines=rivals,
        seed=seed,
        fresh=fresh,
        fail_below=fail_below,
        as_json=as_json,
    )
    code = _evaluate(order, "cpu" if check else device)
    return EXIT_USAGE if has_bad_files else code


def selected(root: str | None, selectors: Sequence[str], problem: str | None) -> tuple[list[Candidate], bool]:
    """What the user selects; and whether some of the files are bad, which is told on stderr.

    Raises:
        UsageError: A selector means nothing.
    """
    bad_files: list[HarnessError] = []
    candidates = select(project_root(root), selectors, problem, bad_files.append)
    for error in bad_files:
        print(f"error: {printable(str(error))}", file=sys.stderr)
    return candidates, bool(bad_files)


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        candidates: The solutions.
        choice: On which cases.
        limits: Seconds that a candidate may run and build.
        home: ``HARNESS_HOME``.
        forward_only: Judge outputs alone.
        is_timed: Whether speed is measured on a GPU.
        require_confinement: Run nothing that is not confined in full.
        is_relaxed: Accept errors up to the tolerances of torch's own tests.
        refused: Rules to enforce that are only reported.
        check: The architecture to check kernels for; empty for no checks.
        baselines: Baselines beside eager.
        seed: The secret that the user named.
        fresh: Judge again what is in the store.
        fail_below: A speedup that is not enough.
        as_json: JSON lines instead of the table.
    """

    candidates: list[Candidate]
    choice: Choice
    limits: Limits
    home: Path
    forward_only: bool
    is_timed: bool
    require_confinement: bool
    is_relaxed: bool
    refused: tuple[str, ...]
    check: str
    baselines: tuple[str, ...]
    seed: str | None
    fresh: bool
    fail_below: float | None
    as_json: bool


def _evaluate(order: Order, wanted_device: str) -> int:
    from harness.executors.session import opened

    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(order.home, writable=True))
        is_new = order.fresh or not all(store.knows(candidate.solution.digest) for candidate in order.candidates)
        session = stack.enter_context(opened(wanted_device, order.home, is_new, order.is_timed))
        # Not before: these import torch, which workers do meanwhile.
        from harness.executors import local
        from harness.judge.draws import new_secret
        from harness.judge.policy import Policy
        from harness.report.table import print_table

        if session.device == "cpu" and order.fail_below is not None:
            raise UsageError("--fail-below: speed is not measured on the CPU emulator; leave it out, or use a GPU")
        if session.device == "cpu" and order.baselines:
            raise UsageError("--baseline: speed is not measured on the CPU emulator; leave it out, or use a GPU")
        secret = order.seed or new_secret()
        policy = Policy(
            session.device,
            secret,
            order.limits,
            order.forward_only,
            order.require_confinement,
            baselines.chosen(order.baselines),
            order.is_relaxed,
            order.refused,
            order.check,
            order.is_timed,
        )
        ledger = Ledger(store, new_run_name(), order.fresh, order.seed)
        verdicts: list[local.Verdict] = []
        if not order.as_json:
            stack.callback(print_table, verdicts)  # also of what is finished when the run is interrupted
        results = stack.enter_context(results_alone())
        stack.enter_context(unwinding())
        jobs, bad_problem = plan(order.candidates, order.choice, session.device == "cpu")
        total = sum(len(job.cases) for job in jobs)
        bar = stack.enter_context(tqdm(total=total, file=sys.stderr, disable=None, unit="case", leave=False))
        told: set[str] = set()
        for outcome in local.run(jobs, policy, session, ledger, bar.set_description_str):
            bar.update()
            if isinstance(outcome, ProblemError):
                bad_problem = True
                if str(outcome) not in told:  # every candidate meets the same one
                    tqdm.write(f"error: {printable(str(outcome))}", file=sys.stderr)
                told.add(str(outcome))
                continue
            verdicts.append(outcome)
            if order.as_json:
                print(outcome.record.to_json(stored=outcome.stored), file=results, flush=True)
    records = [verdict.record for verdict in verdicts]
    slow = _too_slow(records, order.fail_below)
    for record, direction, speedup in slow:
        words = "was not measured" if speedup is None else f"is {speedup:.3g}"
        print(
            f"{one_line(record.solution)} {record.case}: speedup {direction} {words}, below {order.fail_below}",
            file=sys.stderr,
        )
    return exit_code(records, bad_problem) or (EXIT_NOT_PASSED if slow else EXIT_PASSED)


def _too_slow(records: list[EvaluationRecord], bound: float | None) -> list[tuple[EvaluationRecord, str, float | None]]:
    """The passed records with a direction below the bound, that direction and its speedup; fails closed."""
    slow: list[tuple[EvaluationRecord, str, float | None]] = []
    for record in records:
        if bound is None or record.status is not Status.PASSED:
            continue
        if not record.speedup:
            slow.append((record, "over eager", None))
            continue
        slow += [(record, name, value) for name, value in record.speedup.items() if not value >= bound]
    return slow


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

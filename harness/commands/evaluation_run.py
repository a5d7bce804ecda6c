"""Judges the candidates of one ``evaluate`` command and hands each result to the outputs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from harness.commands.lines import MAX_LINE_BYTES, LineReader, Lines
from harness.commands.outputs import named, write_output
from harness.commands.run_outcome import RunOutcome
from harness.device.devices import several as several_devices
from harness.errors import UsageError
from harness.executors import job_loop
from harness.executors.lanes import Lanes, TimeIsUp, Wanted, lanes_on
from harness.executors.plan import CaseChoice, Job, Planner, Plans, plan_key
from harness.executors.result_cache import ResultCache
from harness.judge.policy import Policy
from harness.project.paths import project_root
from harness.project.solutions import Candidate
from harness.records.identity import new_run_name
from harness.records.record import EvaluationRecord
from harness.records.run_config import RunConfig
from harness.records.store import Store
from harness.report.ci import github_annotations, github_summary, junit_xml
from harness.report.sample_scores import print_sample_scores
from harness.report.table import VerdictTable
from harness.system.interrupts import unwinding
from harness.system.scratch import scratch_folder
from harness.system.streams import results_alone
from harness.system.text import shortened

#: Where GitHub Actions says which file takes a step's summary.
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"

#: The longest name of a step in the progress bar, so that its counts stay on a line of 100 characters.
_MOST_STEP = 48


@dataclass(frozen=True, kw_only=True)
class Order:
    """The user's order: the candidates and all settings of the run.

    Attributes:
        candidates: The solutions; None to read them from stdin.
        root: The user's folder with ``problems`` and ``solutions``, or None.
        problem: The problem for lines of stdin that name none.
        choice: The choice of cases.
        home: ``HARNESS_HOME``.
        config: The run's configuration.
        names_baselines: Whether the user named any baseline.
        fresh: Whether to ignore the store's answers and judge again.
        ahead: Number of candidates to build before their turn; None for the default.
        lanes: Number of candidates that the CPU judges in parallel; None for the default.
        executor: ``local`` or ``ray``.
        address: The Ray cluster's address; None for the default.
        fails_fast: Whether to stop at the first candidate that does not pass.
        max_hours: Hours after which the run begins no further candidate.
        fail_below: The smallest speedup that is enough.
        as_json: Whether to print JSON lines instead of the table.
        is_scored: Whether to print the scores of the samples behind the table.
        verbose: Whether the table has a row for each case.
        junit: The JUnit file to write; None for none.
        on_github: Whether to write a summary and annotations for GitHub Actions.
    """

    candidates: list[Candidate] | None
    root: str | None
    problem: str | None
    choice: CaseChoice
    home: Path
    config: RunConfig
    names_baselines: bool
    fresh: bool
    ahead: int | None
    lanes: int | None
    executor: str
    address: str | None
    fails_fast: bool
    max_hours: float | None
    fail_below: float | None
    as_json: bool
    is_scored: bool
    verbose: bool
    junit: Path | None
    on_github: bool


def run_order(order: Order, wanted_device: str) -> int:
    """Judges everything that was ordered, and prints each result.

    Args:
        order: What to judge, and how.
        wanted_device: The device as the user named it.

    Returns:
        The exit code.

    Raises:
        UsageError: The order does not fit the device.
    """
    reports = order.junit is not None or order.on_github
    found = RunOutcome(order.fails_fast, order.max_hours, order.fail_below, collects=reports)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(order.home, writable=True))
        results = stack.enter_context(results_alone())  # keeps a cluster's last messages off stdout
        lanes = _opened(order, wanted_device, stack)
        if lanes.device == "cpu" and order.fail_below is not None:
            raise UsageError("--fail-below: the CPU emulator does not measure speed; leave it out, or use a GPU")
        if lanes.device == "cpu" and order.names_baselines:
            raise UsageError("--baseline: the CPU emulator does not measure speed; leave it out, or use a GPU")
        stack.callback(_report, order, found)  # also if the user interrupts the run
        policy = Policy.settled(order.config, lanes.device)
        ledger = ResultCache(store, new_run_name(), order.fresh, order.config.seed)
        table = VerdictTable(results, verbose=order.verbose)
        scored: list[EvaluationRecord] = []
        stack.callback(lambda: print_sample_scores(scored, results))
        if not order.as_json:
            stack.callback(table.finish)  # also if the user interrupts the run
        stack.enter_context(unwinding())
        planner = Planner(order.choice, lanes.device == "cpu", order.config)
        plans: Plans = {}
        run = functools.partial(
            job_loop.run, policy=policy, lanes=lanes, ledger=ledger, plans=plans, deadline=found.deadline
        )
        jobs: list[Job] = []

        def complete(job: Job) -> None:
            with tqdm.external_write_mode(sys.stderr):  # clears the progress bar for the row
                table.complete(job.candidate.solution.name)

        if order.candidates is None:
            if sys.stdin is None:
                raise UsageError("-: standard input is closed")
            lines = stack.enter_context(_lines(sys.stdin.fileno(), order, planner))

            def forget(job: Job) -> None:
                lines.forget(job)
                complete(job)

            run = functools.partial(run, lines, ahead=order.ahead or 0, source=lines, done=forget)
        else:
            jobs = [planner.job(one) for one in order.candidates]
            run = functools.partial(run, jobs, ahead=order.ahead, done=complete)
            names = (job.candidate.solution.name for job in jobs)
            cases = ([name for name, _ in job.cases] if job.cases else job.candidate.problem.cases for job in jobs)
            table.expect(names, itertools.chain.from_iterable(cases))
        total = _Total(jobs, plans)
        bar = stack.enter_context(_bar(total.now))
        outcomes = run(progress=lambda step: bar.set_description_str(shortened(step, _MOST_STEP)))
        stack.enter_context(contextlib.closing(outcomes))
        try:
            for done, outcome in enumerate(outcomes, start=1):
                bar.total = total.now
                bar.update()
                if isinstance(outcome, job_loop.Fault):
                    found.add_fault(outcome)
                    if order.as_json and outcome.tag is not None:
                        print(outcome.to_json(), file=results, flush=True)
                else:
                    found.add(outcome.record, outcome.stored)
                    bar.set_postfix_str(found.counts, refresh=False)
                    if order.as_json:  # keeps no record in memory
                        more = {} if outcome.tag is None else {"tag": outcome.tag}
                        print(outcome.record.to_json(stored=outcome.stored, **more), file=results, flush=True)
                        found.warn_unfit(outcome.record)
                    else:
                        with tqdm.external_write_mode(sys.stderr):  # clears the progress bar for the row
                            table.add(outcome.record, outcome.stored)
                        if order.is_scored:
                            scored.append(outcome.record)
                if done != total.now and (why := found.why_stop()):
                    _tell_stop(why)
                    break
        except TimeIsUp:
            _tell_stop(found.why_stop())
    for words in found.slow:
        print(words, file=sys.stderr)
    if order.candidates is None and found.is_empty:
        print("error: standard input holds no candidate: write one JSON object a line", file=sys.stderr)
    return found.code


def _report(order: Order, found: RunOutcome) -> None:
    """Writes the reports for continuous integration."""
    if order.junit is not None:
        write_output(order.junit, junit_xml(found.results))
    if order.on_github:
        path = Path(os.environ[SUMMARY_VARIABLE])
        try:
            with path.open("a", encoding="utf-8") as summary:
                summary.write(github_summary(found.results, found.counts))
        except OSError as error:
            raise UsageError(f"--github: cannot write {named(path)}: {error.strerror or error}") from None
        for line in github_annotations(found.results):
            print(line, file=sys.stderr)


def _bar(total: int | None) -> tqdm[NoReturn]:
    """Opens the progress bar on stderr, if that is a terminal: step, rate, time left, passed and failed."""
    return tqdm(total=total, file=sys.stderr, disable=None, unit="case", leave=False, dynamic_ncols=True)


def _tell_stop(why: str) -> None:
    tqdm.write(f"{why}; run the same command again to continue", file=sys.stderr)


class _Total:
    """The total number of outcomes, for the progress bar.

    Args:
        jobs: The jobs of the run; empty if they are not known in advance.
        plans: The cases of problems that fit the CPU, as far as they are known.
    """

    def __init__(self, jobs: Sequence[Job], plans: Plans):
        self._plans = plans
        self._known = sum(len(job.cases) for job in jobs if job.cases is not None)
        self._left = Counter(plan_key(job.candidate.problem) for job in jobs if job.cases is None)
        self._is_open = not jobs

    @property
    def now(self) -> int | None:
        """The total; None until all jobs' cases are known."""
        for key in self._left.keys() & self._plans.keys():
            self._known += self._left.pop(key) * (len(self._plans[key].cases) or 1)  # one fault if none
        return None if self._is_open or self._left else self._known


def _opened(order: Order, wanted_device: str, stack: contextlib.ExitStack) -> Lanes:
    """Opens the run's lanes on this machine's devices or on a cluster."""
    if order.executor == "ray":
        from harness.executors.cluster import lanes_on_cluster
        from harness.executors.protocol import Cluster

        cluster = Cluster(order.address, order.lanes)
        return stack.enter_context(lanes_on_cluster(cluster, wanted_device, order.home, order.config.timing))
    devices = several_devices(wanted_device, order.lanes or 1)
    return stack.enter_context(lanes_on(devices, Wanted(order.home, order.config.timing)))


@contextlib.contextmanager
def _lines(descriptor: int, order: Order, planner: Planner) -> Iterator[Lines]:
    """Opens the stream of candidates from stdin."""
    with scratch_folder("harness-lines-") as folder:
        yield Lines(LineReader(descriptor, MAX_LINE_BYTES), project_root(order.root), order.problem, folder, planner)

"""``benchmark``: times correct solutions against several baselines and writes the table."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import click
from tqdm import tqdm

from harness.commands.evaluate import selected
from harness.commands.run_outcome import exit_code
from harness.errors import EXIT_USAGE, UsageError
from harness.executors.plan import CaseChoice, Planner
from harness.executors.result_cache import ResultCache
from harness.judge.policy import Policy
from harness.project.cases import parse_settings
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.records import baselines
from harness.records.identity import new_run_name
from harness.records.record import EvaluationRecord
from harness.records.results_file import read_results
from harness.records.run_config import RunConfig
from harness.records.store import Store
from harness.system.files import is_there
from harness.system.interrupts import unwinding
from harness.system.streams import results_alone
from harness.system.text import one_line, printable

BASELINES = ("eager", "compile", "compile-max-autotune")


@click.command("benchmark")
@click.argument("selectors", nargs=-1)
@click.option("--problem", help="The problem (name or file) for selectors that are files.")
@option("device")
@click.option("--case", "cases", multiple=True, help="Only this case; repeatable. [default: full, else the first]")
@click.option(
    "--set", "settings", multiple=True, metavar="K=V", help="Replace a constant of the problem. Makes a new case."
)
@click.option(
    "--baseline",
    "rivals",
    multiple=True,
    metavar="NAME",
    help=f"A baseline: {', '.join(baselines.BASELINES)}; repeatable. [default: {', '.join(BASELINES)}]",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table to this file as Markdown.")
@click.option("--against", help="Also compare with an earlier run: its name, or a file of results.")
@option("timeout")
@option("build-timeout")
@option("root")
@option("home")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(
    *,
    selectors: tuple[str, ...],
    problem: str | None,
    device: str,
    cases: tuple[str, ...],
    settings: tuple[str, ...],
    rivals: tuple[str, ...],
    output: Path | None,
    against: str | None,
    timeout: float,
    build_timeout: float,
    root: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Time solutions against eager and compiled PyTorch.

    The table has confidence intervals, the share of the speed of light, and memory. SELECTORS are
    as for `evaluate`; without any, `benchmark` times every solution. A solution that has a passed
    record in the store gets one more trial and a new timing. All other solutions get all trials.
    Needs a GPU.

    \b
    Examples:
      python -m harness benchmark -o benchmarks/h200.md
      python -m harness benchmark group_norm --baseline compile --against run-5ed42ce1
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if cases and settings:
        raise UsageError("--case and --set cannot be used together: --set makes a new case")
    constants = parse_settings(settings)
    names = baselines.chosen(rivals or BASELINES)
    config = RunConfig(timeout_s=timeout, build_timeout_s=build_timeout, baselines=names)
    folder = harness_home(home)
    if output is not None:
        _check_writable(output)
    earlier = None if against is None else _earlier(against, folder)
    candidates, has_bad_files = selected(root, selectors, problem)
    if not candidates:
        return EXIT_USAGE

    from harness.executors import job_loop
    from harness.executors.lanes import Wanted, lanes_on

    report = _Report(output, as_json, earlier)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(folder, writable=True))
        report.results = stack.enter_context(results_alone())
        lanes = stack.enter_context(lanes_on([device], Wanted(folder)))
        if lanes.device == "cpu":
            raise UsageError("the CPU emulator does not measure speed: `benchmark` needs a GPU (see `doctor`)")
        planner = Planner(CaseChoice(cases, constants, is_main=True), on_cpu=False)
        jobs = [planner.job(one) for one in candidates]
        policy = Policy.settled(config, lanes.device)
        ledger = ResultCache(store, new_run_name(), fresh=True, seed=None)
        report.run = ledger.run
        stack.callback(report.write)  # writes the finished records even if the run is interrupted
        stack.enter_context(unwinding())
        bad_problem = False
        with tqdm(
            total=sum(1 if job.cases is None else len(job.cases) for job in jobs),
            file=sys.stderr,
            disable=None,
            unit="case",
        ) as bar:
            for outcome in job_loop.run(jobs, policy, lanes, ledger, bar.set_description_str, confirms=True):
                bar.update()
                if isinstance(outcome, job_loop.Fault):
                    bad_problem = True
                    tqdm.write(f"error: {printable(str(outcome.error))}", file=sys.stderr)
                else:
                    report.records.append(outcome.record)
    return exit_code((record.status for record in report.records), bad_problem or has_bad_files)


@dataclass
class _Report:
    """The table of a benchmark, and where it goes.

    Attributes:
        output: The file for the table; None for stdout.
        as_json: Whether to print JSON on stdout.
        earlier: The records of a run to compare with.
        results: The program's stdout.
        run: The run's name.
        records: The run's records so far.
    """

    output: Path | None
    as_json: bool
    earlier: Sequence[EvaluationRecord] | None
    results: TextIO = sys.stdout
    run: str = ""
    records: list[EvaluationRecord] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def write(self) -> None:
        """Write the table or the JSON object, if there is a record."""
        from harness.report import agreement, benchmark
        from harness.report.scores import print_scores

        if not self.records:
            return
        seconds = time.monotonic() - self.started
        command = shlex.join(["python", "-m", "harness", *sys.argv[1:]])
        text = benchmark.markdown(self.records, command, seconds, f"{_title(self.records)}, {self.run}")
        told = benchmark.as_json(self.records, command, seconds)
        if self.earlier is not None:
            compared = agreement.overlap(self.earlier, self.records)
            text += "\n" + agreement.markdown_agreement(compared)
            told["agreement"] = agreement.agreement_as_json(compared)
        if self.as_json:
            print(json.dumps(told), file=self.results)
        if self.output is None:
            if not self.as_json:
                print(text, file=self.results)
            return
        self.output.write_text(text, encoding="utf-8")
        print(f"wrote {one_line(str(self.output))}; the records are {self.run}", file=sys.stderr)
        if not self.as_json:
            print_scores(benchmark.scores(self.records), self.results)


def _check_writable(output: Path) -> None:
    """Checks that a file can be written, before the GPU works for minutes.

    Raises:
        UsageError: The file cannot be written.
    """
    folder = output.parent
    if output.is_dir() or not folder.is_dir() or not os.access(output if is_there(output) else folder, os.W_OK):
        raise UsageError(f"--output {one_line(str(output))}: cannot be written; name a file in an existing folder")


def _earlier(name: str, home: Path) -> list[EvaluationRecord]:
    """Returns the records of an earlier run.

    Raises:
        UsageError: There is no such run.
        RecordError: The file holds something else.
    """
    if re.fullmatch(r"run-[0-9a-f]+", name):
        with Store(home) as store:
            records = list(store.of_run(name))
        if not records:
            raise UsageError(f"--against {name}: no such run in {store.path}; `python -m harness list runs` names them")
        return records
    return list(read_results(Path(name)))


def _title(records: Sequence[EvaluationRecord]) -> str:
    gpus = dict.fromkeys(record.environment.get("gpu", record.device) for record in records)
    return " and ".join(gpus) or "Benchmark"

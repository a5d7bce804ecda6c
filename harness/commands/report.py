"""``report``: writes one HTML file about runs, records, results files or searches."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.commands.outputs import check_folder, named, write_output
from harness.errors import EXIT_PASSED, UsageError
from harness.generation.transcript import History
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.records.record import EvaluationRecord
from harness.records.results_file import read_results
from harness.records.store import Store
from harness.report.html.candidate import Sources
from harness.report.html.entries import Group
from harness.report.html.searches import Search, Turn
from harness.system.files import is_file, source_text
from harness.system.text import printable

if TYPE_CHECKING:
    from harness.generation.attempts import Attempt
    from harness.generation.transcript import History

_GATES = {None: "; undecided at the gate", True: "; passed the gate", False: "; OVERFITTED"}


@click.command("report")
@click.argument("results", nargs=-1, metavar="[RUN|RECORD|RESULTS|SEARCH]...")
@click.option("-o", "--output", metavar="FILE.html", required=True, help="Write the report to this file.")
@click.option("--problem", help="Only this problem's records.")
@option("home")
def command(results: tuple[str, ...], output: str, problem: str | None, home: str | None) -> int:
    """Write a report: one HTML file that opens from disk.

    It shows scores, a table of problems, charts, and a page for each candidate with its errors,
    latencies, kernels and source.

    RUN is the name of a run (see `list runs`), RESULTS a file that `evaluate --json` or `export
    --jsonl` wrote, RECORD the name of a record, and SEARCH the folder of a run of `generate`, which is
    shown turn by turn. Several are shown side by side. Without any, the report is about the whole store.

    \b
    Examples:
      python -m harness report -o report.html
      python -m harness report run-1f4e2a77 -o report.html
      python -m harness report yesterday.jsonl today.jsonl -o both.html
      python -m harness report runs/first -o search.html
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.generation.transcript import History
    from harness.report.html.page import rendered

    path = Path(output)
    check_folder(path)
    with Store(harness_home(home)) as store:
        folders = [name for name in dict.fromkeys(results) if Path(name).is_dir()]
        histories = {name: History.of(Path(name), store) for name in folders}
        groups = _groups(results, problem, store, histories)
        searches = [_search(name, history) for name, history in histories.items()]
        data = rendered(groups, _sources(groups, store), searches).encode(errors="backslashreplace")
    write_output(path, data)
    count = sum(len(group.records) for group in groups)
    click.echo(f"wrote {named(path)}: {count} records, {len(data) / 1e6:.1f} MB", err=True)
    return EXIT_PASSED


def _sources(groups: Sequence[Group], store: Store) -> Sources:
    """Finds judged texts in the store, or in the solution's file if that still holds the same text."""
    from harness.executors.replay import judged_bytes

    records = {record.digest: record for group in groups for record in group.records}

    def source(digest: str) -> str | None:
        text = store.source(digest)
        if text is None:
            with contextlib.suppress(UsageError):  # then there is no text to show
                return source_text(judged_bytes(records[digest], store))
        return text

    return source


def _search(name: str, history: History) -> Search:
    """Returns a search as the report shows it."""
    told = (f"{what} {history.facts[what]}" for what in ("problem", "device", "strategy") if what in history.facts)
    on_cpu = all(record.device == "cpu" for one in history.attempts for record in one.records)
    turns = [
        Turn(
            number=one.number,
            kind=one.kind,
            parent=one.parent,
            proposer=one.proposer,
            tokens=one.tokens.total,
            device_s=one.device_s(on_cpu=on_cpu),
            result=one.result + _gate(one),
            has_passed=one.has_passed,
            is_open=one.outcome is None,
            speedup=one.speedup,
            records=tuple(record.record for record in one.records),
            prompt=one.prompt,
            answer=history.texts.get(one.number, ""),
        )
        for one in history.attempts
    ]
    return Search(name, ", ".join(told), turns)


def _gate(attempt: Attempt) -> str:
    """Returns what became of an attempt at the gate; empty if it was not there."""
    if attempt.gate is None:
        return ""
    return ": ".join(filter(None, (_GATES[attempt.gate.passed], attempt.gate.words)))


def _groups(names: Sequence[str], problem: str | None, store: Store, histories: Mapping[str, History]) -> list[Group]:
    """Returns what to show; single records form a group of their own.

    Raises:
        UsageError: There is nothing of such a name, or nothing at all.
        RecordError: A file holds something else.
    """
    found: list[Group] = []
    single: list[EvaluationRecord] = []
    for name in dict.fromkeys(names):
        if name in histories:  # each attempt is a candidate, whatever the command of its turn called it
            attempts = histories[name].attempts
            judged = [replace(record, solution=f"attempt {one.number}") for one in attempts for record in one.records]
            found.append(Group(name, judged))
        elif is_file(Path(name)):
            found.append(Group(Path(name).name, read_results(Path(name))))
        elif records := list(store.of_run(name)):
            found.append(Group(name, records))
        elif name.startswith("run-"):
            raise UsageError(f"no run {printable(name)}; `python -m harness list runs` names them")
        else:
            single.append(store.get(name))
    if single:
        found.append(Group("records", single))
    if not names:
        found.append(Group("", list(store.records())))
    found = [Group(one.name, [record for record in one.records if problem in (None, record.problem)]) for one in found]
    if not histories and not any(one.records for one in found):
        of = f" of {printable(problem)}" if problem else ""
        raise UsageError(f"no records{of}: `python -m harness evaluate` makes some")
    return [found[0]._replace(name="")] if len(found) == 1 else found

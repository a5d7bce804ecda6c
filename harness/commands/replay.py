"""``evaluate --replay``: repeats an earlier evaluation and says whether the result is the same."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from harness.errors import EXIT_HARNESS, EXIT_NOT_PASSED, EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root
from harness.records.record import Status
from harness.records.run_config import RunConfig
from harness.records.store import Store

#: The options that ``--replay`` allows; the record determines all others.
_OWN = frozenset({"replay", "problem", "device", "root", "home", "as_json", "fresh"})


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The user's request: a record or its file, its problem, the device, and the folders to use."""

    record: str
    problem: str | None
    device: str
    root: str | None
    home: str | None
    as_json: bool


def replay(wish: ReplayRequest) -> int:
    """Repeats an evaluation and prints the outcome.

    Returns:
        0 if the result is the same, either bit for bit or with the same verdict and figures that
        differ for a known reason; 1 if it differs; 3 if the harness failed.

    Raises:
        UsageError: There is no such record, or it cannot be repeated here.
        RecordError: The record's file cannot be read.
    """
    from harness.executors import replay as executor
    from harness.executors.bundle_files import RecordSource, names_file, read_record_file

    _refuse_others()
    home = harness_home(wish.home)
    if names_file(wish.record):
        source = read_record_file(Path(wish.record))
    else:
        with Store(home) as store:
            source = RecordSource(store.get(wish.record))
    original = source.record
    device = wish.device
    if click.get_current_context().get_parameter_source("device") is not ParameterSource.COMMANDLINE:
        device = original.device
    if RunConfig.of(original).check and device != "cpu":
        raise UsageError(
            f"record {original.record} comes from `check`, which runs on the emulator: leave out --device {device}"
        )
    problem = executor.problem_of(original, project_root(wish.root), wish.problem, source.problems)
    task = executor.ReplayTask(original, problem, device, home, _told, source.solution)
    with Store(home, writable=True) as store:
        record = executor.repeated(task, store)
    if wish.as_json:
        print(record.to_json(stored=False))
    else:
        from harness.report.replay import replay_lines
        from harness.report.table import print_table

        print_table([(record, False)])
        for line in replay_lines(record):
            print(line)
    if record.status is Status.HARNESS_ERROR:
        return EXIT_HARNESS
    return EXIT_NOT_PASSED if record.replay["outcome"] == executor.ReplayOutcome.DIFFERENT else EXIT_PASSED


def _told(words: str) -> None:
    if sys.stderr.isatty():
        print(words, file=sys.stderr)


def _refuse_others() -> None:
    """Refuses options that the record determines.

    Raises:
        UsageError: The user gave such an option.
    """
    context = click.get_current_context()
    for option in context.command.params:
        given = option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if given and option.name not in _OWN and context.params.get(option.name):
            name = option.opts[0] if option.opts[0].startswith("-") else "a selector"
            raise UsageError(f"--replay: leave out {name}; the record determines what is judged, and how")

"""``scores``: scores the samples of a run or a results file."""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import click

from harness.commands.outputs import write_output
from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.records.record import EvaluationRecord
from harness.records.results_file import read_results
from harness.records.store import Store
from harness.report.sample_scores import RESULTS_FILE, as_csv, as_json, kernelbench_results, print_sample_scores
from harness.system.files import is_file
from harness.system.text import printable


@click.command("scores")
@click.argument("results", metavar="RESULTS|RUN")
@click.option(
    "--json", "forms", flag_value="json", multiple=True, help="Print a JSON list, one object per model and level."
)
@click.option(
    "--csv", "forms", flag_value="csv", multiple=True, help="Print CSV, one row per model, level and direction."
)
@click.option("--kernelbench", metavar="DIR", help=f"Write KernelBench's {RESULTS_FILE} into DIR/MODEL/LEVEL instead.")
@click.option("--badge", metavar="FILE", help="Write an SVG badge with the correct samples and their speed instead.")
@click.option("--label", default="kernels", show_default=True, help="The left text of the badge.")
@option("home")
def command(
    *, results: str, forms: tuple[str, ...], kernelbench: str | None, badge: str | None, label: str, home: str | None
) -> int:
    """Score answers: correct, pass@k, fast_p and the geometric mean of the speedups.

    RESULTS is a file that `evaluate --answers --json` or `export --jsonl` wrote, RUN the name of a
    run (see `list runs`). A run holds what it judged itself: answers that the store gave, also to a
    second copy of a text, are in RESULTS alone. Scores are by model and by level, the folder of the
    problem's file. Solutions that are no samples of answers count as samples of their problem.

    \b
    Examples:
      python -m harness scores results.jsonl
      python -m harness scores run-1f4e2a77 --csv
      python -m harness scores results.jsonl --kernelbench runs
      python -m harness scores results.jsonl --badge kernels.svg
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    chosen = [name for name, value in (("--kernelbench", kernelbench), ("--badge", badge)) if value is not None]
    form = forms[0] if forms else None
    if len(set(forms)) > 1:
        raise UsageError("--json and --csv cannot be used together")
    if chosen and (form or len(chosen) > 1):
        raise UsageError(f"{chosen[0]} writes files; leave out {chosen[1] if len(chosen) > 1 else f'--{form}'}")
    records = _records(results, home)
    if badge is not None:
        _write_badge(Path(badge), records, label)
    elif kernelbench is not None:
        _write(Path(kernelbench), records)
    elif form == "json":
        print(json.dumps(as_json(records)))
    elif form == "csv":
        click.echo(as_csv(records), nl=False)
    else:
        print_sample_scores(records)
    return EXIT_PASSED


def _records(name: str, home: str | None) -> list[EvaluationRecord]:
    """Returns the records of a results file or a run.

    Raises:
        UsageError: There is no such file or run.
        RecordError: The file holds something else.
    """
    if is_file(Path(name)):
        return read_results(Path(name))
    with Store(harness_home(home)) as store:
        found = list(store.of_run(name))
    if not found:
        raise UsageError(f"{printable(name)} is no results file, and no run that `python -m harness list runs` names")
    words = "answers from the store, also to copies of a text, are missing here; a file of --json has them"
    click.echo(f"note: a run holds what it judged itself: {words}", err=True)
    return found


def _write_badge(path: Path, records: list[EvaluationRecord], label: str) -> None:
    from harness.report.badge import badge

    write_output(path, badge(records, label).encode())


def _write(folder: Path, records: list[EvaluationRecord]) -> None:
    runs = kernelbench_results(records)
    if not runs:
        raise UsageError("no record is of a problem whose name begins with KernelBench's number, as 19_ReLU does")
    for name in runs:  # before the first is written
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise UsageError(
                f"the model or level {printable(name)} names a folder outside {folder}; nothing was written"
            )
    for name, run in runs.items():
        path = folder / name / RESULTS_FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {path.parent}: {error.strerror}") from None
        write_output(path, json.dumps(run, indent=4).encode())
        click.echo(f"wrote {path}: {len(run)} problems", err=True)

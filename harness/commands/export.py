"""``export``: writes the store's records in formats that other programs read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from harness.commands.outputs import named, write_output
from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.report.export_rows import csv_lines
from harness.system.text import one_line


@click.command("export")
@click.option(
    "--jsonl", "forms", flag_value="jsonl", multiple=True, help="Write complete records, one JSON object per line."
)
@click.option(
    "--csv", "forms", flag_value="csv", multiple=True, help="Write the figures of each record, one row per record."
)
@click.option(
    "--parquet",
    "forms",
    flag_value="parquet",
    multiple=True,
    help="Write the columns of --csv as Parquet (needs pyarrow).",
)
@click.option(
    "--inspect", "forms", flag_value="inspect", multiple=True, help="Write a log of Inspect (needs inspect_ai)."
)
@click.option("--wandb", "project", metavar="PROJECT", help="Log each run to Weights & Biases (needs wandb).")
@click.option("--problem", help="Only this problem's records.")
@click.option("--run", help="Only the records of this run (a name from `list runs`).")
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="Write to this file instead of standard output. For --inspect it may be a folder; for --wandb it is the "
    "folder of wandb's own files.",
)
@option("home")
def command(
    *,
    forms: tuple[str, ...],
    project: str | None,
    problem: str | None,
    run: str | None,
    output: str | None,
    home: str | None,
) -> int:
    """Write the store's records in a format of another program.

    The oldest record comes first. Without --problem and --run, all records are written. --parquet
    and --inspect need -o.

    \b
    Examples:
      python -m harness export --jsonl -o results.jsonl
      python -m harness export --csv --problem group_norm > group_norm.csv
      python -m harness export --parquet -o results.parquet
      python -m harness export --inspect --run run-1f4e2a77 -o logs
      python -m harness export --wandb kernels --run run-1f4e2a77
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    given = [*dict.fromkeys(forms), *(["wandb"] if project is not None else [])]
    if not given:
        raise UsageError(f"choose one format: --jsonl or --csv{_OTHERS}")
    form, *others = given
    if others:
        raise UsageError(f"--{form} and --{others[0]} cannot be used together: choose one format")
    if form in ("parquet", "inspect") and output is None:
        raise UsageError(f"--{form} writes a file: name it with -o PATH")
    with Store(harness_home(home)) as store:
        if run is not None and next(store.of_run(run), None) is None:
            raise UsageError(f"no run {run!r} in {store.path}; `python -m harness list runs` names them")
        records = store.records(problem) if run is None else store.of_run(run)
        chosen = (record for record in records if problem is None or record.problem == problem)
        if project is not None:
            _log_runs(project, list(chosen), output)
        elif form == "parquet":
            from harness.report.export_parquet import parquet_bytes

            write_output(Path(output or ""), parquet_bytes(chosen))
        elif form == "inspect":
            _write_inspect(Path(output or ""), list(chosen), store)
        else:
            _write_lines(_jsonl(chosen) if form == "jsonl" else csv_lines(chosen), output)
    return EXIT_PASSED


#: The formats that need a package, as the message about a missing choice lists them.
_OTHERS = ", --parquet, --inspect, --wandb"


def _write_inspect(path: Path, records: list[EvaluationRecord], store: Store) -> None:
    """Writes a log, into a folder under a name of its own.

    Raises:
        UsageError: There are no records, the name has another end than a log's, or it cannot be
            written.
    """
    from harness.report.export_inspect import SUFFIXES, inspect_log, log_name

    if not records:
        raise UsageError("--inspect: no record to write")
    if path.is_dir():
        path = path / log_name(records)
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"--inspect: the name of a log ends with {' or '.join(SUFFIXES)}; or name a folder that exists"
        )
    write_output(path, inspect_log(records, store.source, path.suffix))
    click.echo(f"wrote {named(path)}: {len(records)} samples", err=True)


def _log_runs(project: str, records: list[EvaluationRecord], folder: str | None) -> None:
    """Logs each run by itself.

    Raises:
        UsageError: There are no records, or wandb refuses.
    """
    from harness.report.export_wandb import log_run

    if not records:
        raise UsageError("--wandb: no record to log")
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"--wandb: there is no folder {one_line(folder)}")
    by_run: dict[str, list[EvaluationRecord]] = {}
    for record in records:
        by_run.setdefault(record.run, []).append(record)
    for name, found in by_run.items():
        log_run(project, name, found, folder)
        click.echo(f"logged {one_line(name)}: {len(found)} records", err=True)


def _write_lines(lines: Iterator[str], output: str | None) -> None:
    if output is not None:
        _write(Path(output), lines)
        return
    for line in lines:
        sys.stdout.write(line)


def _write(path: Path, lines: Iterator[str]) -> None:
    """Writes a file completely or not at all.

    A file that is not regular (a pipe) gets line by line.
    """
    direct = path.exists() and not path.is_file()
    target = path if direct else path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with target.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines)
        if not direct:
            target.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    finally:
        if not direct:
            with contextlib.suppress(OSError):  # the file may not exist
                target.unlink()


def _jsonl(records: Iterator[EvaluationRecord]) -> Iterator[str]:
    for record in records:
        yield record.to_json() + "\n"

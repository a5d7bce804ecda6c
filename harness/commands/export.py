"""``export``: writes the store's records in formats that other programs read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home, shown
from harness.project.settings import option
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.report.export_rows import csv_lines
from harness.system.files import write_whole
from harness.system.text import one_line


@click.command("export")
@click.option("--jsonl", "form", flag_value="jsonl", help="Write complete records, one JSON object per line.")
@click.option("--csv", "form", flag_value="csv", help="Write the figures of each record, one row per record.")
@click.option("--parquet", "form", flag_value="parquet", help="Write the columns of --csv as Parquet (needs pyarrow).")
@click.option("--problem", help="Only this problem's records.")
@click.option("--run", help="Only the records of this run (a name from `list runs`).")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@option("home")
def command(form: str | None, problem: str | None, run: str | None, output: str | None, home: str | None) -> int:
    """Write the store's records as JSON lines, CSV or Parquet.

    The oldest record comes first. --parquet needs -o.

    \b
    Examples:
      python -m harness export --jsonl -o results.jsonl
      python -m harness export --csv --problem group_norm > group_norm.csv
      python -m harness export --parquet -o results.parquet
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if form is None:
        raise UsageError("choose a format: --jsonl or --csv, or --parquet for a file")
    if form == "parquet" and output is None:
        raise UsageError("--parquet writes a file: name it with -o FILE")
    with Store(harness_home(home)) as store:
        if run is not None and next(store.of_run(run), None) is None:
            raise UsageError(f"no run {run!r} in {store.path}; `python -m harness list runs` names them")
        records = store.records(problem) if run is None else store.of_run(run)
        if form == "parquet":
            from harness.report.export_parquet import parquet_bytes

            assert output is not None
            _write_bytes(Path(output), parquet_bytes(records))
            return EXIT_PASSED
        lines = _jsonl(records) if form == "jsonl" else csv_lines(records)
        if output is None:
            for line in lines:
                sys.stdout.write(line)
            return EXIT_PASSED
        _write(Path(output), lines)
    return EXIT_PASSED


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


def _write_bytes(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise UsageError(f"cannot write {one_line(shown(path))}: {error.strerror or error}") from None


def _jsonl(records: Iterator[EvaluationRecord]) -> Iterator[str]:
    for record in records:
        yield record.to_json() + "\n"

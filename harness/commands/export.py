"""``export``: writes the store's records as JSON lines or CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.report.csv_cells import cell

#: The columns of the CSV: first a record's plain fields, then figures from its nested objects.
_PLAIN = (
    "record", "run", "created_at", "problem", "solution", "case", "device", "status", "rule", "message",
    "precision_class", "trials", "forward_ms", "forward_backward_ms", "build_s", "run_s", "total_s",
    "seed", "digest", "problem_digest",
)  # fmt: skip
_TAKEN = ("eager_forward_ms", "eager_forward_backward_ms", "speedup_forward", "speedup_forward_backward")
_SHARES = ("output_share", "gradient_share")


@click.command("export")
@click.option("--jsonl", "form", flag_value="jsonl", help="Write complete records, one JSON object per line.")
@click.option("--csv", "form", flag_value="csv", help="Write the figures of each record, one row per record.")
@click.option("--problem", help="Only this problem's records.")
@click.option("--run", help="Only the records of this run (a name from `list runs`).")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@option("home")
def command(form: str | None, problem: str | None, run: str | None, output: str | None, home: str | None) -> int:
    """Write the store's records as JSON lines or CSV.

    The oldest record comes first.

    \b
    Examples:
      python -m harness export --jsonl -o results.jsonl
      python -m harness export --csv --problem group_norm > group_norm.csv
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if form is None:
        raise UsageError("choose a format: --jsonl or --csv")
    with Store(harness_home(home)) as store:
        if run is not None and next(store.of_run(run), None) is None:
            raise UsageError(f"no run {run!r} in {store.path}; `python -m harness list runs` names them")
        records = store.records(problem) if run is None else store.of_run(run)
        lines = _jsonl(records) if form == "jsonl" else _csv(records)
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


def _jsonl(records: Iterator[EvaluationRecord]) -> Iterator[str]:
    for record in records:
        yield record.to_json() + "\n"


def _csv(records: Iterator[EvaluationRecord]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [*_PLAIN, *_TAKEN, *_SHARES], lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(_row(record))
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _row(record: EvaluationRecord) -> dict[str, Any]:
    """Returns the figures of a record. A figure that was not measured stays empty."""
    eager, speedup = record.baselines.get("eager", {}), record.speedup or {}
    row = {name: getattr(record, name) for name in _PLAIN}
    for direction in ("forward", "forward_backward"):
        row[f"eager_{direction}_ms"] = eager.get(f"{direction}_ms")
        row[f"speedup_{direction}"] = speedup.get(direction)
    for name, reports in zip(_SHARES, (record.outputs, record.gradients), strict=True):
        row[name] = max((report.share for report in reports if report.share is not None), default=None)
    return {name: cell(value) for name, value in row.items()}

"""The figures of a record as one row of a table, for CSV and typed formats."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from harness.records.record import EvaluationRecord
from harness.report.csv_cells import cell

#: The columns: first a record's plain fields, then figures from its nested objects.
_PLAIN = (
    "record", "run", "created_at", "problem", "solution", "case", "device", "status", "rule", "message",
    "precision_class", "trials", "forward_ms", "forward_backward_ms", "build_s", "run_s", "total_s",
    "seed", "digest", "problem_digest",
)  # fmt: skip
_TAKEN = ("eager_forward_ms", "eager_forward_backward_ms", "speedup_forward", "speedup_forward_backward")
_SHARES = ("output_share", "gradient_share")
COLUMNS = (*_PLAIN, *_TAKEN, *_SHARES)


def row(record: EvaluationRecord) -> dict[str, Any]:
    """Returns the figures of a record by column, in the columns' order. A figure that was not measured is None."""
    eager, speedup = record.baselines.get("eager", {}), record.speedup or {}
    found = {name: getattr(record, name) for name in _PLAIN}
    for direction in ("forward", "forward_backward"):
        found[f"eager_{direction}_ms"] = eager.get(f"{direction}_ms")
        found[f"speedup_{direction}"] = speedup.get(direction)
    for name, reports in zip(_SHARES, (record.outputs, record.gradients), strict=True):
        found[name] = max((report.share for report in reports if report.share is not None), default=None)
    return {name: found[name] for name in COLUMNS}


def csv_lines(records: Iterable[EvaluationRecord]) -> Iterator[str]:
    """Yields the lines of a CSV file, the header first."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: cell(value) for name, value in row(record).items()})
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()

"""Writes the figures of records as Parquet."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from typing import Any

from harness.records.record import EvaluationRecord
from harness.report.export_rows import COLUMNS, row
from harness.report.extras import imported
from harness.report.record_times import time_of
from harness.system.text import storable

#: The number of rows of a row group, which is what memory holds at once as Python objects.
_GROUP_ROWS = 10_000
_TEXTS = frozenset(
    {
        "record", "run", "problem", "solution", "case", "device", "status", "rule", "message", "precision_class",
        "seed", "digest", "problem_digest",
    }
)  # fmt: skip


def parquet_bytes(records: Iterable[EvaluationRecord]) -> bytes:
    """Returns a Parquet file with a row for each record, in their order.

    Texts are strings, ``trials`` is an integer, ``created_at`` a time in UTC, and all other columns
    are 64-bit floats. A figure that was not measured is null, and so is a ``created_at`` that is no
    time.

    Raises:
        UsageError: pyarrow is not installed.
    """
    arrow, parquet = imported("pyarrow", "--parquet"), imported("pyarrow.parquet", "--parquet")
    others = {"trials": arrow.int64(), "created_at": arrow.timestamp("ms", tz="UTC")}
    schema = arrow.schema(
        [(name, arrow.string() if name in _TEXTS else others.get(name, arrow.float64())) for name in COLUMNS]
    )
    buffer, remaining = io.BytesIO(), iter(records)
    with parquet.ParquetWriter(buffer, schema) as writer:
        while group := list(itertools.islice(remaining, _GROUP_ROWS)):
            rows = [{name: _typed(name, value) for name, value in row(record).items()} for record in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema))
    return buffer.getvalue()


def _typed(name: str, value: Any) -> Any:
    if value is None or name == "trials":
        return value
    if name == "created_at":
        return time_of(value)
    return storable(str(value)) if name in _TEXTS else float(value)

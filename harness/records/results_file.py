"""Reads the records of a results file, as ``evaluate --json`` and ``export --jsonl`` write it."""

from __future__ import annotations

from pathlib import Path

from harness.errors import RecordError
from harness.records.record import EvaluationRecord


def read_results(path: Path) -> list[EvaluationRecord]:
    """Reads the records of a file from ``evaluate --json`` or ``export --jsonl``.

    Raises:
        RecordError: The file cannot be read, contains no records, or has a line that is none.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"cannot read results {path}: {error}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(EvaluationRecord.from_json(line))
        except ValueError as error:
            raise RecordError(
                f"{path}:{number}: {error}; a results file has one record per line, as `evaluate --json` writes them"
            ) from None
    if not records:
        raise RecordError(f"{path} holds no records")
    return records

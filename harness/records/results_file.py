"""Reads the records of a results file, as ``evaluate --json`` and ``export --jsonl`` write it."""

from __future__ import annotations

import json
from pathlib import Path

from harness.errors import RecordError
from harness.records.record import EvaluationRecord
from harness.system.files import read_regular

#: The largest results file. A record has some 20 KB.
MOST_BYTES = 4 << 30


def read_results(path: Path) -> list[EvaluationRecord]:
    """Reads the records of a file from ``evaluate --json`` or ``export --jsonl``.

    Lines of ``evaluate`` about requests without a verdict are left out.

    Raises:
        RecordError: The file cannot be read, contains no records, or has a line that is none.
    """
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8-sig").split("\n")
    except OSError as error:
        raise RecordError(f"cannot read results {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise RecordError(f"cannot read results {path}: {error}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or _is_fault(line):
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


def _is_fault(line: str) -> bool:
    """Returns whether a line says why a request has no verdict."""
    if '"status": null' not in line:
        return False
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("status", "") is None and "error" in told

"""Reads the records of a results file, as ``evaluate --json`` and ``export --jsonl`` write it."""

from __future__ import annotations

import math
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
            record = EvaluationRecord.from_json(line)
            _check_samples(record)
            records.append(record)
        except (ValueError, OverflowError) as error:
            raise RecordError(
                f"{path}:{number}: {error}; a results file has one record per line, as `evaluate --json` writes them"
            ) from None
    if not records:
        raise RecordError(f"{path} holds no records")
    return records


def _check_samples(record: EvaluationRecord) -> None:
    """Verifies that a comparison can compute with a record's latencies.

    Raises:
        ValueError: It cannot.
    """
    for direction, sides in record.samples.items():
        sides = sides if isinstance(sides, dict) else {"": None}
        lengths = set()
        for name, side in sides.items():
            side = side if isinstance(side, dict) else {}
            samples = side.get("samples_ms")
            figures = [side.get(key) for key in ("median_ms", "low_ms", "high_ms")]
            figures += samples if isinstance(samples, list) else [None]
            if not all(isinstance(figure, int | float) and 0 < figure < math.inf for figure in figures):
                raise ValueError(f"the record's samples of {direction} {name} are not latencies in milliseconds")
            lengths.add(len(figures))
        if len(lengths) > 1:
            raise ValueError(f"the record's samples of {direction} must come in pairs, but some have no partner")

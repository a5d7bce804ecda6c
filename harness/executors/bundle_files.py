"""Names the files of a reproduction bundle, and reads the record of an unpacked one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import RecordError
from harness.records.record import EvaluationRecord
from harness.records.results_file import read_results
from harness.system.text import one_line

RECORD_FILE, SOLUTION_FILE, PROBLEM_FOLDER = "record.json", "solution.py", "problem"


@dataclass(frozen=True)
class RecordSource:
    """A record to repeat, with the places where its files may lie.

    Attributes:
        record: The record.
        solution: Path of the solution's exact text; None if only the record names a place.
        problems: Paths of problem files to try first.
    """

    record: EvaluationRecord
    solution: Path | None = None
    problems: tuple[Path, ...] = ()


def names_file(record: str) -> bool:
    """Returns whether a text names a record's file; a record's name in the store has no suffix."""
    return record.endswith(".json")


def read_record_file(path: Path) -> RecordSource:
    """Reads the record of an unpacked bundle.

    Raises:
        RecordError: The file cannot be read, or does not hold exactly one record.
    """
    records = read_results(path)
    if len(records) > 1:
        raise RecordError(f"{one_line(str(path))} holds {len(records)} records; a replay repeats one")
    folder = path.parent
    return RecordSource(records[0], folder / SOLUTION_FILE, tuple(sorted((folder / PROBLEM_FOLDER).glob("*.py"))))

"""Tells how a solution came about: the attempts that led to it, from a run's transcript."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.generation.search import RUNS
from harness.generation.transcript import FILE_NAME
from harness.records.record import EvaluationRecord
from harness.system.text import one_line, shortened

_MOST_NAME = 60


def find_lineage(home: Path, record: EvaluationRecord, folder: Path | None = None) -> list[str]:
    """Returns a line for each attempt that led to a record, the first one first.

    Args:
        home: ``HARNESS_HOME``, whose runs are searched.
        record: The record.
        folder: The run's folder; None to search.

    Returns:
        The lines; none if no run of the home has the record.

    Raises:
        UsageError: The folder holds no run with the record.
    """
    places = sorted((home / RUNS).glob(f"*/{FILE_NAME}")) if folder is None else [folder / FILE_NAME]
    for path in places:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if record.record in text:
            found = list(_told(text, record.record))
            if found:
                return found
    if folder is not None:
        raise UsageError(f"{one_line(str(folder))} holds no run with record {record.record}")
    return []


def _told(text: str, record: str) -> Iterator[str]:
    """Yields the lines of the attempts from the root to the one with the record."""
    asked: dict[int, dict[str, Any]] = {}
    settled: dict[int, dict[str, Any]] = {}
    for line in text.splitlines():
        try:
            event = json.loads(line)
            places = {"asked": asked, "settled": settled}.get(event["event"])
            if places is not None:
                places[int(event["number"])] = event
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    number = next((one for one, event in settled.items() if record in event.get("records", ())), None)
    chain: list[int] = []
    while number in asked and number not in chain:
        chain.insert(0, number)
        number = asked[number].get("parent")
    for one in chain:
        turn, end = asked[one], settled.get(one, {})
        by = shortened(str(turn.get("proposer")), _MOST_NAME)
        verdicts = zip(end.get("statuses", ()), end.get("records", ()), strict=False)
        came = ", ".join(f"{status} (record {name})" for status, name in verdicts) or str(end.get("outcome"))
        yield one_line(f"attempt {one}, {turn.get('kind')}, by {by}: {came}")

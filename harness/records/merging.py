"""Merges the records of other stores, such as those of other machines, into one store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.records.identity import identity
from harness.records.record import EvaluationRecord, Status
from harness.records.store import Kept, Store

#: Statuses that say nothing about the candidate, so no other verdict contradicts them.
_NO_VERDICTS = frozenset({Status.HARNESS_ERROR, Status.OUT_OF_MEMORY})


class Conflict(NamedTuple):
    """Two records of one key with different verdicts; the store keeps both.

    Attributes:
        here: The newest record of the store with another verdict.
        there: The record that was taken in.
    """

    here: EvaluationRecord
    there: EvaluationRecord


@dataclass
class Taken:
    """The result of merging one source.

    Attributes:
        added: Number of records taken in.
        known: Number of records that the store already had.
        answered: Number of records left out because the store has their key with the same verdict.
        conflicts: Records taken in although the store has another verdict.
        clashes: Names of records left out because the store has other records of those names.
    """

    added: int = 0
    known: int = 0
    answered: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)


def merge(target: Store, sources: Sequence[Store], takes_all: bool = False) -> list[Taken]:
    """Merges other stores into one, in one transaction; it only reads the others.

    A record's key is its identity (see ``records.identity``). If the store already has a key, the
    merge takes only records with another verdict. Of other keys, it takes all records.

    Args:
        target: The writable store.
        sources: The other stores.
        takes_all: Whether to take records with the same verdict, too.

    Returns:
        The result for each source.

    Raises:
        StoreError: A source is damaged or newer, or the target cannot be written. The target is
            then unchanged.
    """
    with target.one_transaction():
        return [_take(target, source, takes_all) for source in sources]


def _take(target: Store, source: Store, takes_all: bool) -> Taken:
    found = Taken()
    before: dict[str, list[EvaluationRecord]] = {}
    for kept in source.everything():
        record = kept.record
        body = target.body(record.record)
        if body is not None:
            if body == kept.body:
                found.known += 1
            else:
                found.clashes.append(record.record)
            continue
        key = identity(record)
        if key not in before:
            before[key] = list(target.of_identity(key))
        if not takes_all and any(_answer(one) == _answer(record) for one in before[key]):
            found.answered += 1
            continue
        _add(target, kept, before[key], found)
    return found


def _add(target: Store, kept: Kept, before: Sequence[EvaluationRecord], found: Taken) -> None:
    target.insert(kept)
    found.added += 1
    there = _verdict(kept.record)
    here = next((one for one in before if None not in (there, _verdict(one)) and _verdict(one) != there), None)
    if here is not None:
        found.conflicts.append(Conflict(here, kept.record))


def _verdict(record: EvaluationRecord) -> tuple[Status, str | None] | None:
    """Returns what a record says about the candidate, or None if the record is not a verdict."""
    return None if record.status in _NO_VERDICTS else (record.status, record.rule)


def _answer(record: EvaluationRecord) -> tuple[Status, str | None, bool]:
    """Returns what a record answers: its verdict, and whether it has a speed."""
    return record.status, record.rule, record.speedup is not None

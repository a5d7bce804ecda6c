"""Takes the records of other stores in, as from other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.records.record import EvaluationRecord, Status
from harness.records.store import Kept, Store, identity

#: What says nothing of the candidate: no other verdict contradicts it.
_NO_VERDICTS = frozenset({Status.HARNESS_ERROR, Status.OUT_OF_MEMORY})


class Conflict(NamedTuple):
    """Two records of one key that came to different verdicts; both are kept.

    Attributes:
        here: The store's newest that says otherwise.
        there: The one that was taken in.
    """

    here: EvaluationRecord
    there: EvaluationRecord


@dataclass
class Taken:
    """What came of one source.

    Attributes:
        added: Records that were taken in.
        known: Records that the store had already.
        answered: Records left out, since the store has their key with the same verdict.
        conflicts: Records that were taken in though the store's say otherwise.
        clashes: Names of records that were left out, since the store has other records of those names.
    """

    added: int = 0
    known: int = 0
    answered: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)


def merge(target: Store, sources: Sequence[Store], takes_all: bool = False) -> list[Taken]:
    """Take what other stores hold into one, in one transaction; the others are only read.

    A record's key is its identity (see ``store.identity``). Of a key that the store has already, only what came to
    another verdict is taken; of any other, all that the source has.

    Args:
        target: The store, writable.
        sources: The others.
        takes_all: Take also what came to the same verdict.

    Returns:
        What came of each source.

    Raises:
        StoreError: A source is damaged or newer, or the store cannot be written; it is as it was.
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
    """What a record says of the candidate, None where that is nothing."""
    return None if record.status in _NO_VERDICTS else (record.status, record.rule)


def _answer(record: EvaluationRecord) -> tuple[Status, str | None, bool]:
    """What a record answers: its verdict, and whether it has a speed."""
    return record.status, record.rule, record.speedup is not None

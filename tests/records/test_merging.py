"""Tests ``store merge``: the records of several machines in one store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.executors.result_cache import is_final
from harness.records.identity import identity
from harness.records.merging import merge
from harness.records.record import EvaluationRecord, Status
from harness.records.store import Kept, Store
from tests.records.test_store import RECORD, garbage, garbled_pages, newer, of_another_program

Harness = Callable[..., Any]
#: The same question, answered on another machine: sooner, and by another secret.
TWIN = replace(RECORD, record="bbbbbbbbbbbb", seed="cd", created_at="2025-12-31T00:00:00+00:00")
OTHER = replace(RECORD, record="cccccccccccc", digest="d9", solution="p/other")
REFUTED = replace(TWIN, record="dddddddddddd", status=Status.WRONG_OUTPUT)


def home_of(folder: Path, *records: EvaluationRecord) -> Path:
    with Store(folder, writable=True) as store:
        for record in records:
            store.add(record, f"text of {record.digest}")
    return folder


def names(home: Path) -> list[str]:
    with Store(home) as store:
        return [record.record for record in store.records()]


def test_of_a_key_that_is_known_one_record_is_kept_and_nothing_else_is_lost(harness: Harness, tmp_path: Path) -> None:
    again = replace(RECORD, record="eeeeeeeeeeee")  # judged twice on one machine, as with --fresh: its own business
    here, there = home_of(tmp_path / "here", RECORD, again), home_of(tmp_path / "there", TWIN, OTHER)
    before = (there / "store.db").read_bytes()
    ran = harness("store", "merge", there, HARNESS_HOME=str(here))
    assert (ran.code, ran.err) == (0, "")
    assert "1 records added, 1 left out" in ran.out
    assert names(here) == [RECORD.record, again.record, OTHER.record]
    with Store(here) as store:
        assert store.source("d9") == "text of d9"
        assert store.get(OTHER.record).to_json() == OTHER.to_json()
    assert (there / "store.db").read_bytes() == before
    ran = harness("store", "merge", there, here, "--home", tmp_path / "new", "--json")
    counts = [[one[name] for name in ("added", "known", "answered")] for one in ran.rows[0]["sources"]]
    assert counts == [[2, 0, 0], [0, 1, 2]]
    ran = harness("store", "merge", there / "store.db", "--all", HARNESS_HOME=str(here))
    assert (ran.code, names(here)[-1]) == (0, TWIN.record)


def test_other_verdicts_on_one_key_are_both_kept_and_told(harness: Harness, tmp_path: Path) -> None:
    here, there = home_of(tmp_path / "here", RECORD), home_of(tmp_path / "there", REFUTED, TWIN)
    ran = harness("store", "merge", there, HARNESS_HOME=str(here))
    assert ran.code == 1
    assert "conflict: p/s on p, case odd, CPU emulator: PASSED here (record aaaaaaaaaaaa" in ran.out
    assert "WRONG_OUTPUT there (record dddddddddddd" in ran.out
    assert names(here) == [RECORD.record, REFUTED.record]
    with Store(here) as store:  # that which was made last answers, not that which came in last
        newest = store.find(identity(RECORD), None, is_final)
        assert newest is not None
        assert newest.record == RECORD.record
    assert harness("store", "merge", there, HARNESS_HOME=str(here)).code == 0  # all of it is known now


def test_another_record_of_the_same_name_replaces_nothing(harness: Harness, tmp_path: Path) -> None:
    forged = replace(RECORD, status=Status.CRASHED)
    here, there = home_of(tmp_path / "here", RECORD), home_of(tmp_path / "there", forged, OTHER)
    ran = harness("store", "merge", there, HARNESS_HOME=str(here))
    assert (ran.code, names(here)) == (1, [RECORD.record, OTHER.record])
    assert "another record here has the name aaaaaaaaaaaa" in ran.out
    with Store(here) as store:
        assert store.get(RECORD.record).status is Status.PASSED


def without_a_text(path: Path) -> None:
    home_of(path.parent, RECORD)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM sources")
    connection.commit()
    connection.close()


def of_a_newer_record(path: Path) -> None:
    with Store(path.parent, writable=True) as store, store.one_transaction():
        store.insert(Kept(RECORD, replace(RECORD, version=99).to_json(), ""))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (newer, "newer harness"),
        (of_another_program, "another program"),
        (garbage, "damaged"),
        (garbled_pages, "damaged"),
        (without_a_text, "damaged"),
        (of_a_newer_record, "upgrade the harness"),
    ],
)
def test_a_source_that_cannot_be_read_in_full_leaves_the_store_as_it_is(
    harness: Harness, tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    here, good, bad = home_of(tmp_path / "here", RECORD), home_of(tmp_path / "good", OTHER), tmp_path / "bad"
    bad.mkdir()
    spoil(bad / "store.db")
    ran = harness("store", "merge", good, bad, HARNESS_HOME=str(here))
    assert (ran.code, ran.out) == (3, "")
    assert words in ran.err
    assert str(bad / "store.db") in ran.err
    assert names(here) == [RECORD.record]


def test_a_merge_that_ends_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = home_of(tmp_path / "here"), home_of(tmp_path / "there", RECORD, OTHER)
    insert = Store.insert

    def interrupted(store: Store, kept: Kept) -> None:
        insert(store, kept)
        if kept.record.record == OTHER.record:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "insert", interrupted)
    with Store(here, writable=True) as target, Store(there) as source, pytest.raises(KeyboardInterrupt):
        merge(target, [source])
    assert names(here) == []


def test_what_is_no_store_is_told(harness: Harness, tmp_path: Path) -> None:
    here = home_of(tmp_path / "here", RECORD)
    for other, words in (
        (tmp_path / "none", "no store"),
        (here, "the store to merge into"),
        (here / "store.db", "the store to merge into"),
    ):
        ran = harness("store", "merge", other, HARNESS_HOME=str(here))
        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err

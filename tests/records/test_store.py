"""Tests the store's file: what it keeps, what it refuses, and what it never changes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import StoreError, UsageError
from harness.records.identity import fitness_key, identity
from harness.records.record import EvaluationRecord, PrecisionClass, Status, TensorReport
from harness.records.store import Kept, Store
from harness.records.store_layout import MIGRATIONS

REPOSITORY = Path(__file__).resolve().parents[2]
RECORD = EvaluationRecord(
    problem="p",
    solution="p/s",
    case="odd",
    device="cpu",
    status=Status.PASSED,
    message="",
    seed="ab",
    digest="d1",
    problem_digest="d2",
    precision_class=PrecisionClass.FP32,
    constants={"shape": (1, 2)},
    outputs=(TensorReport("output", (1, 2), "float32", False, share=float("inf"), l2_error=float("nan")),),
    samples={"forward": {"candidate": {"samples_ms": [1.0, 2.5], "median_ms": 1.75, "low_ms": 1.0, "high_ms": 2.5}}},
    environment={"torch": "2.13", "cores": "2"},
    record="aaaaaaaaaaaa",
    run="run-1",
    created_at="2026-01-01T00:00:00+00:00",
)


def any_record(_: EvaluationRecord) -> bool:
    return True


def test_a_record_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "home", writable=True) as store:
        store.add(RECORD, "the source")
    with Store(tmp_path / "home") as store:
        kept = store.get("aaaa")
        assert store.source("d1") == "the source"
        assert store.source("d3") is None
    assert kept.to_json() == RECORD.to_json()  # NaN equals nothing, in JSON it does
    assert kept.samples == RECORD.samples
    assert kept.outputs[0].shape == (1, 2)
    assert kept.status is Status.PASSED


def test_a_reader_that_stops_early_says_nothing_of_the_store(tmp_path: Path) -> None:
    with Store(tmp_path, writable=True) as store:
        for number in range(3):
            store.add(replace(RECORD, record=f"{number:012x}"), "")
        left, late = store.records(), store.records()
        next(left)
        next(late)
    left.close()  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="closed during a read"):
        next(late)


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "--csv"],
        ["export", "--jsonl"],
        ["list", "records"],
        ["list", "records", "--json"],
        ["show", "--json", "aaaaaaaaaaaa"],
        ["config", "--show"],
        ["evaluate", "--rules"],
        ["--help"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("count", [1, 500], ids=["short", "long"])
def test_a_command_whose_reader_has_gone_ends_quietly(tmp_path: Path, arguments: list[str], count: int) -> None:
    with Store(tmp_path, writable=True) as store, store.one_transaction():
        for number in range(count):
            name = f"{number:012x}" if number else "aaaaaaaaaaaa"
            store.insert(Kept(replace(RECORD, record=name), replace(RECORD, record=name).to_json(), ""))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "harness", *arguments]
    environment = {**os.environ, "HARNESS_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    ran = subprocess.run(command, env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert ran.stderr == ""
    assert ran.returncode == 130


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"seed": "cd"}, True),
        ({"device": "cuda:1"}, False),
        ({"status": Status.CRASHED}, True),
        ({"constants": {"shape": [1, 2]}}, True),
        ({"constants": {"shape": [1, 3]}}, False),
        ({"digest": "other"}, False),
        ({"problem_digest": "other"}, False),
        ({"case": "other"}, False),
        ({"policy": {"forward_only": True}}, False),
        ({"environment": {"torch": "2.12", "cores": "2"}}, False),
        ({"environment": {"torch": "2.13", "cores": "64"}}, True),
        ({"environment": {"torch": "2.13", "cores": "2", "harness_code": "changed"}}, False),
    ],
)
def test_what_an_evaluation_is_known_by(change: dict[str, object], same: bool) -> None:
    assert (identity(replace(RECORD, **change)) == identity(RECORD)) is same  # type: ignore[arg-type]


def custom(**constants: Any) -> EvaluationRecord:
    """A record of ``--set``."""
    settings = tuple(f"{name}={value!r}" for name, value in constants.items())
    return replace(RECORD, case="custom", constants=constants, settings=settings)


def test_values_that_json_cannot_tell_apart_make_other_keys() -> None:
    values = [[1, 2], (1, 2), {1: 2}, {"1": 2}, ([1],), [(1,)], 1e999, "inf"]
    records = [custom(n=value) for value in values]
    assert len({identity(record) for record in records}) == len(values)
    assert len({fitness_key(record) for record in records}) == len(values)
    back = [EvaluationRecord.from_json(record.to_json()) for record in records]
    assert [identity(record) for record in back] == [identity(record) for record in records]


def test_the_keys_of_old_stores_stay() -> None:
    plain = {"batch": 4, "eps": 1e-5, "kind": "it's", "affine": True, "scale": -0.5, "none": None, "shape": [1, [2]]}
    assert identity(custom(**plain)) == "2bbdf000acbd376d595e16aec04d4088984361ca80abb0d9d5bef58133c8a47a"


def test_the_newest_record_that_can_be_used_answers(tmp_path: Path) -> None:
    wanted = identity(RECORD)
    with Store(tmp_path, writable=True) as store:
        assert store.find(wanted, None, any_record) is None
        store.add(RECORD, "")
        store.add(replace(RECORD, record="bbbbbbbbbbbb", seed="cd", status=Status.HARNESS_ERROR), "")
        found = store.find(wanted, None, any_record)
        assert found is not None
        assert found.record == "bbbbbbbbbbbb"
        usable = store.find(wanted, None, lambda record: record.status is not Status.HARNESS_ERROR)
        assert usable is not None
        assert usable.record == "aaaaaaaaaaaa"
        of_seed = store.find(wanted, "ab", any_record)
        assert of_seed is not None
        assert of_seed.record == "aaaaaaaaaaaa"
        assert store.find(wanted, "ef", any_record) is None


def test_records_are_never_changed_and_a_name_is_given_once(tmp_path: Path) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "")
        with pytest.raises(StoreError):
            store.add(RECORD, "")
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        for statement in ("UPDATE records SET status = 'FAILED'", "DELETE FROM records"):
            with pytest.raises(sqlite3.IntegrityError, match="immutable"):
                connection.execute(statement)
    with Store(tmp_path) as store:
        assert store.get("aaaaaaaaaaaa").status is Status.PASSED


@pytest.mark.parametrize(
    ("name", "words"),
    [("b", "no record"), ("aaaa", "2 records begin with"), ("zz", "no record"), ("' OR 1", "no record")],
)
def test_a_name_must_mean_one_record(tmp_path: Path, name: str, words: str) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "")
        store.add(replace(RECORD, record="aaaab0000000"), "")
        with pytest.raises(UsageError, match=words):
            store.get(name)


def test_a_missing_store_is_empty_and_reading_makes_none(tmp_path: Path) -> None:
    with Store(tmp_path / "none") as store:
        assert list(store.records()) == []
        assert store.runs() == []
        with pytest.raises(UsageError, match="no record"):
            store.get("aaaa")
    assert not (tmp_path / "none").exists()


def newer(path: Path) -> None:
    with Store(path.parent, writable=True):
        pass
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 6}")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def of_another_program(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.commit()
    connection.close()


def garbage(path: Path) -> None:
    path.write_bytes(b"not a database, " * 1000)


def garbled_pages(path: Path) -> None:
    with Store(path.parent, writable=True) as store:
        store.add(RECORD, "x" * 100_000)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(path.read_bytes())
    data[4096 : 4096 * 20] = b"\xa5" * (4096 * 19)
    path.write_bytes(data)


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (newer, "newer harness"),
        (of_another_program, "another program"),
        (garbage, "damaged"),
        (garbled_pages, "damaged"),
    ],
)
def test_a_file_that_is_no_store_of_ours_is_refused_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], words: str, writable: bool
) -> None:
    path = tmp_path / "store.db"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=words) as caught, Store(tmp_path, writable=writable) as store:
        list(store.records())
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    with Store(tmp_path) as store:
        assert list(store.records()) == []
    assert (tmp_path / "store.db").read_bytes() == b""
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "")


def test_an_older_layout_is_migrated_by_the_next_evaluation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "")
    monkeypatch.setattr("harness.records.store_layout.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE extra (name TEXT);\n"))
    with pytest.raises(StoreError, match="older"), Store(tmp_path) as store:
        list(store.records())
    with Store(tmp_path, writable=True) as store:
        store.add(replace(RECORD, record="bbbbbbbbbbbb"), "")
    with Store(tmp_path) as store:
        assert [record.record for record in store.records()] == ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]


def test_a_migration_that_fails_half_way_leaves_the_old_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "")
    steps = (*MIGRATIONS, "CREATE TABLE extra (name TEXT);\nCREATE TABLE records (again TEXT);\n")
    monkeypatch.setattr("harness.records.store_layout.MIGRATIONS", steps)
    with pytest.raises(StoreError, match="already exists"):
        Store(tmp_path, writable=True)
    monkeypatch.undo()
    with Store(tmp_path, writable=True) as store:
        assert store.get("aaaa").status is Status.PASSED


FILL = """
import resource, sys
from pathlib import Path
from dataclasses import replace
from harness.errors import StoreError
from harness.records.store import Store
from tests.records.test_store import RECORD

with Store(Path(sys.argv[1]), writable=True) as store:
    store.add(RECORD, "")
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        store.add(replace(RECORD, record="bbbbbbbbbbbb", digest="d9"), "x" * 1_000_000)
    except StoreError as error:
        print(error)
"""


def test_a_full_disk_is_told_and_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    repository = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)], cwd=repository, capture_output=True, text=True, check=True
    )
    assert "disk" in ran.stdout
    assert "finished results are kept" in ran.stdout
    with Store(tmp_path, writable=True) as store:
        assert [record.record for record in store.records()] == ["aaaaaaaaaaaa"]
        store.add(replace(RECORD, record="cccccccccccc"), "")


def test_records_in_a_log_that_cannot_be_read_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "killed", writable=True) as store:
        store.add(RECORD, "")
        for name in ("store.db", "store.db-wal"):  # as a kill leaves them
            (tmp_path / name).write_bytes((tmp_path / "killed" / name).read_bytes())
    connect = sqlite3.connect

    def without_an_index(address: str, **options: object) -> sqlite3.Connection:
        if "mode=ro" in address:  # what SQLite does where it cannot make the log's index
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return connect(address, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr("harness.records.store.sqlite3.connect", without_an_index)
    with pytest.raises(StoreError, match="beside it also holds records"):
        Store(tmp_path)
    (tmp_path / "store.db-wal").unlink()
    with Store(tmp_path) as store:
        assert list(store.records()) == []
    monkeypatch.undo()
    with Store(tmp_path / "killed") as store:
        assert [record.record for record in store.records()] == ["aaaaaaaaaaaa"]


def test_a_source_may_hold_what_is_no_unicode_text(tmp_path: Path) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "x = '\ud800'")
        assert store.source("d1") == "x = '\\ud800'"


def test_a_store_in_use_is_waited_for_and_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, writable=True) as store:
        store.add(RECORD, "")
    monkeypatch.setattr("harness.records.store.BUSY_TIMEOUT_S", 0.05)
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store(tmp_path, writable=True) as store, pytest.raises(StoreError, match="another program"):
        store.add(replace(RECORD, record="bbbbbbbbbbbb"), "")
    other.execute("ROLLBACK")
    other.close()

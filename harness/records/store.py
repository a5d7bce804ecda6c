"""The store: every evaluation record, kept in SQLite, never changed.

``$HARNESS_HOME/store.db`` in write-ahead mode: a record is there whole, from the moment ``add`` returns, or not at
all; several programs may write at once. The layout has a version; an older file is migrated step by step, a newer one
is refused. Files that are no store, or damaged, are never written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from harness.errors import RecordError, StoreError, UsageError
from harness.records.record import EvaluationRecord, plain
from harness.system.files import is_there

FILE_NAME = "store.db"
#: Marks the file as ours (SQLite's application_id): "KHst".
APPLICATION_ID = 0x4B487374
#: Seconds to wait for another program that writes.
BUSY_TIMEOUT_S = 30.0
#: What of a record's environment says which software and machine it holds for.
IDENTIFYING = ("harness", "harness_code", "python", "torch", "compiler", "processor", "gpu", "capability", "cuda")

_FIRST_LAYOUT = """
CREATE TABLE sources (digest TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
    number INTEGER PRIMARY KEY,
    record TEXT NOT NULL UNIQUE,
    identity TEXT NOT NULL,
    seed TEXT NOT NULL,
    run TEXT NOT NULL,
    created_at TEXT NOT NULL,
    problem TEXT NOT NULL,
    solution TEXT NOT NULL,
    case_name TEXT NOT NULL,
    device TEXT NOT NULL,
    status TEXT NOT NULL,
    digest TEXT NOT NULL REFERENCES sources (digest),
    body TEXT NOT NULL
);
CREATE INDEX records_by_identity ON records (identity);
CREATE INDEX records_by_digest ON records (digest);
CREATE INDEX records_by_run ON records (run);
CREATE TRIGGER records_stay BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records are immutable'); END;
CREATE TRIGGER records_remain BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are immutable'); END;
"""
#: What the fitness checks of ``judge.validation`` found, once for each ``fitness_key``.
_FITNESS = """
CREATE TABLE fitness (key TEXT PRIMARY KEY, reasons TEXT NOT NULL) WITHOUT ROWID;
"""
#: The step from each layout to the next; a layout's version is how many steps led to it.
MIGRATIONS = (_FIRST_LAYOUT, _FITNESS)


#: Values of a query's parameters, in order or by name.
_Arguments = tuple[Any, ...] | dict[str, Any]


class Kept(NamedTuple):
    """A record with the text that the store has of it, and its solution's."""

    record: EvaluationRecord
    body: str
    source: str


class RunSummary(NamedTuple):
    """One command's records, counted."""

    run: str
    created_at: str
    records: int
    passed: int
    device: str


def identity(record: EvaluationRecord) -> str:
    """What an evaluation is known by: solution, problem, case, kind of device, policy, software and machine.

    Two records with the same identity answer the same question; their secrets (``seed``) may differ.
    """
    known = {
        "solution": record.digest,
        "problem": record.problem_digest,
        "case": record.case,
        "constants": record.constants,
        "device": record.device.partition(":")[0],
        "policy": record.policy,
        "environment": {name: record.environment.get(name) for name in IDENTIFYING},
    }
    return hashlib.sha256(json.dumps(plain(known), sort_keys=True).encode()).hexdigest()


def fitness_key(record: EvaluationRecord) -> str:
    """Names what the fitness checks of a record's case depend on: problem, constants, device and software."""
    known = {
        "problem": record.problem_digest,
        "constants": record.constants,
        "device": record.device.partition(":")[0],
        "environment": {name: record.environment.get(name) for name in IDENTIFYING},
    }
    return hashlib.sha256(json.dumps(plain(known), sort_keys=True).encode()).hexdigest()


class Store:
    """An open store; a context manager.

    Args:
        home: ``HARNESS_HOME``.
        writable: Make the file where there is none, migrate an older one, and allow ``add``. A store that is only
            read is never changed and may lie in a folder that cannot be written.

    Raises:
        StoreError: The file cannot be opened, is damaged, newer, or not a store.
    """

    def __init__(self, home: Path, writable: bool = False, name: str = FILE_NAME):
        self.path = home / name
        self._connection: sqlite3.Connection | None = None
        if is_there(self.path) and not os.path.isfile(self.path):  # noqa: PTH113 - False for any odd name
            raise StoreError(f"{self.path} is no file; set HARNESS_HOME to another folder")
        with self._explained():
            self._connection = self._open_writable(home) if writable else self._open_readable()
            if self._connection is not None:
                self._check_layout(writable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add(self, record: EvaluationRecord, source: str) -> None:
        """Keep a record and its solution's text; it is on disk when this returns.

        Raises:
            StoreError: It could not be kept; the store is as it was.
        """
        with self.one_transaction():
            self.insert(Kept(record, record.to_json(), source))

    @contextlib.contextmanager
    def one_transaction(self) -> Iterator[None]:
        """What is inserted meanwhile is kept as a whole, or not at all.

        Raises:
            StoreError: It could not be kept; the store is as it was.
        """
        with self._explained(), self._writing():
            yield

    def insert(self, kept: Kept) -> None:
        """Keep a record within ``one_transaction``."""
        assert self._connection is not None
        record = kept.record
        row = {
            "record": record.record, "identity": identity(record), "seed": record.seed, "run": record.run,
            "created_at": record.created_at, "problem": record.problem, "solution": record.solution,
            "case_name": record.case, "device": record.device, "status": record.status.value,
            "digest": record.digest, "body": kept.body,
        }  # fmt: skip
        columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        row = {name: _writable(value) for name, value in row.items()}
        text = _writable(kept.source)
        self._connection.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (record.digest, text))
        self._connection.execute(f"INSERT INTO records ({columns}) VALUES ({values})", row)

    def fitness(self, key: str) -> tuple[str, ...] | None:
        """Returns what the fitness checks found under a ``fitness_key``; None where they have not run.

        Raises:
            StoreError: The store is damaged.
        """
        for (text,) in self._rows("SELECT reasons FROM fitness WHERE key = ?", (key,)):
            try:
                return tuple(map(str, json.loads(text)))
            except (ValueError, TypeError):
                raise StoreError(f"{self.path}: the fitness checks' result {key[:12]} cannot be read") from None
        return None

    def keep_fitness(self, key: str, reasons: tuple[str, ...]) -> None:
        """Keeps what the fitness checks found; the first result of a key stays.

        Raises:
            StoreError: The store cannot be written; it is as it was.
        """
        with self._explained(), self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO fitness VALUES (?, ?)", (key, json.dumps(reasons)))

    def everything(self) -> Iterator[Kept]:
        """All records in the order in which the store got them, as texts too; what is damaged is found.

        Raises:
            StoreError: The file is damaged, or a record of it cannot be read.
        """
        for (found,) in self._rows("PRAGMA quick_check(1)", ()):
            if found != "ok":
                raise StoreError(f"the store {self.path} is damaged ({found}); nothing was written to it")
        query = "SELECT record, digest, body, text FROM records LEFT JOIN sources USING (digest) ORDER BY number"
        for name, digest, body, text in self._rows(query, ()):
            record = self._parsed(name, body)
            if (record.record, record.digest) != (name, digest) or text is None:
                raise StoreError(f"{self.path}: record {name} is damaged: its text and its row do not say the same")
            yield Kept(record, body, text)

    def find(
        self, wanted: str, seed: str | None, usable: Callable[[EvaluationRecord], bool]
    ) -> EvaluationRecord | None:
        """The newest record of an identity that can be used, None where there is none.

        Args:
            wanted: The identity.
            seed: The secret that it must have been made with; None for any.
            usable: Says whether a record answers the question.
        """
        condition = "identity = :identity AND (:seed IS NULL OR seed = :seed)"
        for record in self._records(
            condition, {"identity": wanted, "seed": seed}, newest_first=True, order="created_at"
        ):
            if usable(record):
                return record
        return None

    def of_identity(self, wanted: str) -> Iterator[EvaluationRecord]:
        """All records of an identity, newest first."""
        return self._records("identity = ?", (wanted,), newest_first=True, order="created_at")

    def body(self, name: str) -> str | None:
        """The text of the record that has exactly this name."""
        for (body,) in self._rows("SELECT body FROM records WHERE record = ?", (name,)):
            return str(body)
        return None

    def get(self, name: str) -> EvaluationRecord:
        """The record of a name, or of the beginning of one.

        Raises:
            UsageError: There is none, or several begin so.
        """
        found = list(self._beginning(name))
        if not found:
            raise UsageError(f"no record {name!r} in {self.path}; `python -m harness list records` names them")
        if len(found) > 1:
            names = ", ".join(record.record for record in found[:5])
            raise UsageError(f"{len(found)} records begin with {name!r} ({names}); give more of the name")
        return found[0]

    def has(self, name: str) -> bool:
        """Whether the name of at least one record begins so."""
        return next(self._beginning(name), None) is not None

    def knows(self, digest: str) -> bool:
        """Whether there is any record of a solution file's text."""
        return bool(next(self._rows("SELECT 1 FROM records WHERE digest = ? LIMIT 1", (digest,)), None))

    def of_solution(self, digest: str, newest_first: bool = False) -> Iterator[EvaluationRecord]:
        """All records of a solution file's text, oldest first unless told otherwise."""
        return self._records("digest = ?", (digest,), newest_first, order="created_at")

    def newest_passed(self, problem: str, case: str, limit: int) -> Iterator[EvaluationRecord]:
        """The newest records of a case, of any solution, that passed."""
        condition = "problem = ? AND case_name = ? AND status = 'PASSED'"
        return itertools.islice(self._records(condition, (problem, case), newest_first=True), limit)

    def of_run(self, run: str) -> Iterator[EvaluationRecord]:
        """All records of a command, oldest first."""
        return self._records("run = ?", (run,))

    def records(self, problem: str | None = None) -> Iterator[EvaluationRecord]:
        """All records, oldest first; those of one problem where one is named."""
        return self._records(":problem IS NULL OR problem = :problem", {"problem": problem})

    def runs(self) -> list[RunSummary]:
        """All commands that left records, oldest first."""
        query = (
            "SELECT run, min(created_at), count(*), sum(status = 'PASSED'), min(device) "
            "FROM records GROUP BY run ORDER BY min(number)"
        )
        return [RunSummary(*row) for row in self._rows(query, ())]

    def source(self, digest: str) -> str | None:
        """The text of a solution that a record was made of."""
        for (text,) in self._rows("SELECT text FROM sources WHERE digest = ?", (digest,)):
            return str(text)
        return None

    def _beginning(self, name: str) -> Iterator[EvaluationRecord]:
        """The records whose names begin so; none for what cannot be the beginning of a name."""
        if not re.fullmatch("[0-9a-f]+", name):
            return iter(())
        return self._records("record >= :name AND record < :name || 'g'", {"name": name})

    def _records(
        self, condition: str, arguments: _Arguments, newest_first: bool = False, order: str = "number"
    ) -> Iterator[EvaluationRecord]:
        """Records in the order in which the store got them, or, where few are meant, were made: some were merged in."""
        way = "DESC" if newest_first else "ASC"
        query = f"SELECT record, body FROM records WHERE {condition} ORDER BY {order} {way}, number {way}"
        for name, body in self._rows(query, arguments):
            yield self._parsed(name, body)

    def _parsed(self, name: str, body: str) -> EvaluationRecord:
        try:
            return EvaluationRecord.from_json(body)
        except (ValueError, OverflowError) as error:
            raise StoreError(f"{self.path}: record {name} cannot be read: {error}") from None

    def _rows(self, query: str, arguments: _Arguments) -> Iterator[tuple[Any, ...]]:
        if self._connection is None:
            return
        with self._explained():
            cursor = self._connection.execute(query, arguments)
        while True:
            with self._explained():  # not around the yield: what happens there is none of the store's
                row = cursor.fetchone()
            if row is None:
                return
            yield row

    def _open_writable(self, home: Path) -> sqlite3.Connection:
        home.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            if _is_strange(connection):
                raise self._strange()
            self._refuse_newer(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_readable(self) -> sqlite3.Connection | None:
        """A connection that cannot write; None where there is no file, which is an empty store."""
        if not self.path.exists():
            return None
        address = f"file:{quote(str(self.path))}"
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            connection.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError as error:
            if connection is not None:
                connection.close()
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            # A folder that cannot be written has no room for the log's index. Without a log all is in the file itself.
            log = self.path.with_name(f"{FILE_NAME}-wal")
            if log.exists() and log.stat().st_size:
                raise StoreError(
                    f"{self.path} cannot be read where it lies: {log.name} beside it holds records too, and reading "
                    f"both takes a folder that can be written. Copy both to one (cp {self.path}* FOLDER) and name that "
                    "folder with --home"
                ) from None
            connection = sqlite3.connect(f"{address}?immutable=1", uri=True, isolation_level=None)
        if _is_strange(connection):
            connection.close()
            raise self._strange()
        return connection

    def _strange(self) -> StoreError:
        return StoreError(f"{self.path} is an SQLite file of another program; set HARNESS_HOME to another folder")

    def _refuse_newer(self, connection: sqlite3.Connection) -> int:
        """The file's layout, if it is one that this harness knows."""
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout > len(MIGRATIONS):
            raise StoreError(
                f"{self.path} was written by a newer harness (layout {layout}, this one knows {len(MIGRATIONS)}): "
                "upgrade the harness, or set HARNESS_HOME to another folder"
            )
        return int(layout)

    def _check_layout(self, writable: bool) -> None:
        assert self._connection is not None
        layout, newest = self._refuse_newer(self._connection), len(MIGRATIONS)
        if layout == 0 and not writable:  # made, but not yet filled: an empty store
            self._connection.close()
            self._connection = None
            return
        if layout < newest and not writable:
            raise StoreError(f"{self.path} has layout {layout}, older than {newest}: the next evaluation migrates it")
        if layout < newest:
            self._migrate(self._connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the file to the newest layout, in one transaction; another program may have done it meanwhile."""
        with self._writing():
            (layout,) = connection.execute("PRAGMA user_version").fetchone()
            for step in MIGRATIONS[layout:]:
                for statement in _statements(step):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        assert self._connection is not None
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what is wrong with the store and what to do, for whatever SQLite or the system says."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StoreError(f"the store {self.path} was closed while it was read") from error
        except sqlite3.OperationalError as error:
            raise StoreError(f"the store {self.path}: {error}; {_remedy(str(error))}") from None
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the store {self.path} is damaged ({error}); nothing was written to it. Move it away and run again; "
                f"`sqlite3 {self.path} .recover` may save what it held"
            ) from None
        except OSError as error:
            words = f"the store {self.path}: {error.strerror}; set HARNESS_HOME to a folder that you can write"
            raise StoreError(words) from None


def new_record_name() -> str:
    """A name for a record: 12 hex digits."""
    return secrets.token_hex(6)


def new_run_name() -> str:
    """A name for a command: ``run-`` and 8 hex digits."""
    return f"run-{secrets.token_hex(4)}"


def read_results(path: Path) -> list[EvaluationRecord]:
    """The records of a file that ``evaluate --json`` or ``export --jsonl`` wrote.

    Raises:
        RecordError: It cannot be read, holds no records, or a line of it is none.
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
                f"{path}:{number}: {error}; a results file has one record a line, as `evaluate --json` writes them"
            ) from None
    if not records:
        raise RecordError(f"{path} holds no records")
    return records


def _check_samples(record: EvaluationRecord) -> None:
    """Verify that a record's latencies are what a comparison computes with.

    Raises:
        ValueError: They are not.
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
                raise ValueError(f"the record's samples of {direction} {name} are no latencies in milliseconds")
            lengths.add(len(figures))
        if len(lengths) > 1:
            raise ValueError(f"the record's samples of {direction} come in pairs, and some have no partner")


def _is_strange(connection: sqlite3.Connection) -> bool:
    """Whether the file holds something, and that is not a store."""
    # In this order: another program may be making the first layout just now, tables and mark in one transaction.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(tables) and mark != APPLICATION_ID


def _writable(text: str) -> str:
    """Text that SQLite takes: a file's name may hold bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one at a time: ``executescript`` would end the transaction."""
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _remedy(message: str) -> str:
    remedies: Mapping[str, str] = {
        "full": "make room on its disk, then give the same command again: what is finished is kept",
        "disk I/O": "its disk is full or failing; then give the same command again: what is finished is kept",
        "readonly": "it cannot be written: set HARNESS_HOME to a folder that you can write",
        "unable to open": "set HARNESS_HOME to a folder that you can write",
        "locked": f"another program has held it for {BUSY_TIMEOUT_S:.0f} s: try again when that has ended",
    }
    return next((remedy for word, remedy in remedies.items() if word in message), "try again")

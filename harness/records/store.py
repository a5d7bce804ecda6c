"""Keeps every evaluation record in an SQLite file and never changes one.

The file is ``$HARNESS_HOME/store.db`` in write-ahead mode. A record is completely on disk when
``add`` returns, or not at all. Several programs may write at once. The layout has a version: the
store migrates an older file step by step and refuses a newer one. It never writes to a file that is
damaged or not a store.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from harness.errors import StoreError, UsageError
from harness.records import store_layout
from harness.records.identity import identity
from harness.records.record import EvaluationRecord
from harness.system.files import is_there
from harness.system.text import storable

FILE_NAME = "store.db"
#: Seconds to wait for another program that writes.
BUSY_TIMEOUT_S = 30.0
#: Values of a query's parameters, in order or by name.
_Arguments = tuple[Any, ...] | dict[str, Any]


class Kept(NamedTuple):
    """A record with its text in the store and the text of its solution."""

    record: EvaluationRecord
    body: str
    source: str


class RunSummary(NamedTuple):
    """The counts of one command's records."""

    run: str
    created_at: str
    records: int
    passed: int
    device: str


class Store:
    """An open store, which is a context manager.

    Args:
        home: ``HARNESS_HOME``.
        writable: Whether to create a missing file, migrate an older one, and allow ``add``.
            Otherwise the store never changes and may lie in a folder without write permission.
        name: Name of the file in ``home``.

    Raises:
        StoreError: The file cannot be opened, is damaged, newer, or not a store.
    """

    def __init__(self, home: Path, writable: bool = False, name: str = FILE_NAME):
        self.path = home / name
        self._connection: sqlite3.Connection | None = None
        if is_there(self.path) and not os.path.isfile(self.path):  # noqa: PTH113 - False for any odd name
            raise StoreError(f"{self.path} is not a file; set HARNESS_HOME to another folder")
        with self._explained():
            self._connection = self._open_writable(home) if writable else self._open_readable()
            if self._connection is not None:
                try:
                    self._check_layout(writable)
                except BaseException:
                    self.close()
                    raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add(self, record: EvaluationRecord, source: str) -> None:
        """Adds a record and its solution's text. They are on disk when the method returns.

        Raises:
            StoreError: The record could not be written. The store is unchanged.
        """
        with self.one_transaction():
            self.insert(Kept(record, record.to_json(), source))

    @contextlib.contextmanager
    def one_transaction(self) -> Iterator[None]:
        """Inserts all records of the block in one transaction, or none of them.

        Raises:
            StoreError: The records could not be written. The store is unchanged.
        """
        with self._explained(), self._writing():
            yield

    def insert(self, kept: Kept) -> None:
        """Inserts a record within ``one_transaction``."""
        assert self._connection is not None
        record = kept.record
        row = {
            "record": record.record, "identity": identity(record), "seed": record.seed, "run": record.run,
            "created_at": record.created_at, "problem": record.problem, "solution": record.solution,
            "case_name": record.case, "device": record.device, "status": record.status.value,
            "digest": record.digest, "body": kept.body,
        }  # fmt: skip
        columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        row = {name: storable(value) for name, value in row.items()}
        text = storable(kept.source)
        self._connection.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (row["digest"], text))
        self._connection.execute(f"INSERT INTO records ({columns}) VALUES ({values})", row)

    def fitness(self, key: str) -> tuple[str, ...] | None:
        """Returns the result of the fitness checks for a ``fitness_key``; None if they did not run.

        Raises:
            StoreError: The store is damaged.
        """
        for (text,) in self._rows("SELECT reasons FROM fitness WHERE key = ?", (key,)):
            try:
                return tuple(map(str, json.loads(text)))
            except (ValueError, TypeError, RecursionError):
                raise StoreError(f"{self.path}: cannot read the fitness result {key[:12]}") from None
        return None

    def keep_fitness(self, key: str, reasons: tuple[str, ...]) -> None:
        """Saves the result of the fitness checks; the first result of a key stays.

        Raises:
            StoreError: The store cannot be written. It is unchanged.
        """
        with self._explained(), self._writing() as connection:
            connection.execute("INSERT OR IGNORE INTO fitness VALUES (?, ?)", (key, json.dumps(reasons)))

    def everything(self) -> Iterator[Kept]:
        """Checks the file and yields all records with their texts, in the order of insertion.

        Raises:
            StoreError: The file is damaged, or one of its records cannot be read.
        """
        for (found,) in self._rows("PRAGMA quick_check(1)", ()):
            if found != "ok":
                raise StoreError(f"the store {self.path} is damaged ({found}); nothing was written to it")
        query = "SELECT record, digest, body, text FROM records LEFT JOIN sources USING (digest) ORDER BY number"
        for name, digest, body, text in self._rows(query, ()):
            record = self._parsed(name, body)
            if (record.record, record.digest) != (name, digest) or text is None:
                raise StoreError(f"{self.path}: record {name} is damaged: its text and its columns differ")
            yield Kept(record, body, text)

    def find(
        self, wanted: str, seed: str | None, usable: Callable[[EvaluationRecord], bool]
    ) -> EvaluationRecord | None:
        """Returns the newest usable record of an identity, or None.

        Args:
            wanted: The identity.
            seed: Required secret of the record; None for any.
            usable: Predicate that tells whether a record answers the question.
        """
        condition = "identity = :identity AND (:seed IS NULL OR seed = :seed)"
        for record in self._records(
            condition, {"identity": wanted, "seed": seed}, newest_first=True, order="created_at"
        ):
            if usable(record):
                return record
        return None

    def of_identity(self, wanted: str) -> Iterator[EvaluationRecord]:
        """Yields all records of an identity, newest first."""
        return self._records("identity = ?", (wanted,), newest_first=True, order="created_at")

    def body(self, name: str) -> str | None:
        """Returns the text of the record with exactly this name."""
        for (body,) in self._rows("SELECT body FROM records WHERE record = ?", (name,)):
            return str(body)
        return None

    def get(self, name: str) -> EvaluationRecord:
        """Returns the record with a name or with a unique beginning of one.

        Raises:
            UsageError: There is no such record, or several names begin like this.
        """
        found = list(self._beginning(name))
        if not found:
            raise UsageError(f"no record {name!r} in {self.path}; `python -m harness list records` names them")
        if len(found) > 1:
            names = ", ".join(record.record for record in found[:5])
            raise UsageError(f"{len(found)} records begin with {name!r} ({names}); give more characters of the name")
        return found[0]

    def has(self, name: str) -> bool:
        """Returns whether the name of at least one record begins like this."""
        return next(self._beginning(name), None) is not None

    def of_solution(self, digest: str, newest_first: bool = False) -> Iterator[EvaluationRecord]:
        """Yields all records of a solution file's text, oldest first by default."""
        return self._records("digest = ?", (digest,), newest_first, order="created_at")

    def newest_passed(self, problem: str, case: str, limit: int) -> Iterator[EvaluationRecord]:
        """Yields the newest records of a case that passed, of any solution."""
        condition = "problem = ? AND case_name = ? AND status = 'PASSED'"
        return itertools.islice(self._records(condition, (problem, case), newest_first=True), limit)

    def newest_failed(self, limit: int) -> Iterator[EvaluationRecord]:
        """Yields the newest records that did not pass, of any problem."""
        return itertools.islice(self._records("status != 'PASSED'", (), newest_first=True), limit)

    def of_run(self, run: str) -> Iterator[EvaluationRecord]:
        """Yields all records of a command, oldest first."""
        return self._records("run = ?", (run,))

    def records(self, problem: str | None = None) -> Iterator[EvaluationRecord]:
        """Yields all records, or those of one problem, oldest first."""
        return self._records(":problem IS NULL OR problem = :problem", {"problem": problem})

    def runs(self) -> list[RunSummary]:
        """Returns all commands with records, oldest first."""
        query = (
            "SELECT run, min(created_at), count(*), sum(status = 'PASSED'), min(device) "
            "FROM records GROUP BY run ORDER BY min(number)"
        )
        return [RunSummary(*row) for row in self._rows(query, ())]

    def source(self, digest: str) -> str | None:
        """Returns the text of a recorded solution, or None."""
        for (text,) in self._rows("SELECT text FROM sources WHERE digest = ?", (digest,)):
            return str(text)
        return None

    def _beginning(self, name: str) -> Iterator[EvaluationRecord]:
        """Yields the records whose names begin like this, or none for an impossible beginning."""
        if not re.fullmatch("[0-9a-f]+", name):
            return iter(())
        return self._records("record >= :name AND record < :name || 'g'", {"name": name})

    def _records(
        self, condition: str, arguments: _Arguments, newest_first: bool = False, order: str = "number"
    ) -> Iterator[EvaluationRecord]:
        """Yields records in an order of columns: of insertion by default.

        Queries for few records use their creation times instead, because some records were merged
        in later.
        """
        way = "DESC" if newest_first else "ASC"
        query = f"SELECT record, body FROM records WHERE {condition} ORDER BY {order} {way}, number {way}"
        for name, body in self._rows(query, arguments):
            yield self._parsed(name, body)

    def _parsed(self, name: str, body: str) -> EvaluationRecord:
        try:
            return EvaluationRecord.from_json(body)
        except ValueError as error:
            raise StoreError(
                f"{self.path}: cannot read record {name}: {error}; no harness of this version wrote it: copy the store "
                "again from where it was made, or name another one with --home"
            ) from None

    def _rows(self, query: str, arguments: _Arguments) -> Iterator[tuple[Any, ...]]:
        if self._connection is None:
            return
        if isinstance(arguments, dict):
            arguments = {name: _searchable(value) for name, value in arguments.items()}
        else:
            arguments = tuple(map(_searchable, arguments))
        with self._explained():
            cursor = self._connection.execute(query, arguments)
        while True:
            with self._explained():  # not around the yield, because errors there are not the store's
                row = cursor.fetchone()
            if row is None:
                return
            if any(isinstance(value, bytes) for value in row):
                raise StoreError(f"the store {self.path} is damaged: it has bytes where a text belongs")
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
        """Opens a read-only connection; None if there is no file, which means an empty store."""
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
            # A folder without write permission has no room for the log's index. Without a log, the
            # file itself holds everything.
            log = self.path.with_name(f"{self.path.name}-wal")
            if log.exists() and log.stat().st_size:
                raise StoreError(
                    f"{self.path} cannot be read in place: {log.name} beside it also holds records, and "
                    f"reading both needs a writable folder. Copy both to one (cp {self.path}* FOLDER) and "
                    "name that folder with --home"
                ) from None
            connection = sqlite3.connect(f"{address}?immutable=1", uri=True, isolation_level=None)
        except sqlite3.DatabaseError:
            if connection is not None:
                connection.close()
            raise
        try:
            if _is_strange(connection):
                raise self._strange()
        except BaseException:
            connection.close()
            raise
        return connection

    def _strange(self) -> StoreError:
        return StoreError(f"{self.path} is an SQLite file of another program; set HARNESS_HOME to another folder")

    def _refuse_newer(self, connection: sqlite3.Connection) -> int:
        """Returns the file's layout, or raises StoreError if this harness does not know it."""
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        newest = len(store_layout.MIGRATIONS)
        if layout > newest:
            raise StoreError(
                f"{self.path} was written by a newer harness (layout {layout}, this one knows {newest}): "
                "upgrade the harness, or set HARNESS_HOME to another folder"
            )
        return int(layout)

    def _check_layout(self, writable: bool) -> None:
        assert self._connection is not None
        layout, newest = self._refuse_newer(self._connection), len(store_layout.MIGRATIONS)
        if layout == 0 and not writable:  # created but not yet filled, which means an empty store
            self._connection.close()
            self._connection = None
            return
        if layout < newest and not writable:
            raise StoreError(f"{self.path} has layout {layout}, older than {newest}: the next evaluation migrates it")
        if layout < newest:
            self._migrate(self._connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrates the file to the newest layout, in one transaction.

        Another program may have migrated it in the meantime.
        """
        with self._writing():
            (layout,) = connection.execute("PRAGMA user_version").fetchone()
            for step in store_layout.MIGRATIONS[layout:]:
                for statement in store_layout.statements(step):
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {store_layout.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(store_layout.MIGRATIONS)}")

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
        """Converts errors of SQLite and the system to StoreError, with a remedy."""
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise StoreError(f"the store {self.path} was closed during a read") from error
        except sqlite3.OperationalError as error:
            raise StoreError(f"the store {self.path}: {error}; {_remedy(str(error))}") from None
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"the store {self.path} is damaged ({error}); nothing was written to it. Move it away and run again; "
                f"`sqlite3 {self.path} .recover` may save what it held"
            ) from None
        except OSError as error:
            words = f"the store {self.path}: {error.strerror}; set HARNESS_HOME to a folder that you can write to"
            raise StoreError(words) from None


def _is_strange(connection: sqlite3.Connection) -> bool:
    """Returns whether the file has content that is not a store."""
    # The order matters. Another program may be creating the first layout, with tables and mark in
    # one transaction.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (mark,) = connection.execute("PRAGMA application_id").fetchone()
    return bool(tables) and mark != store_layout.APPLICATION_ID


def _searchable(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


def _remedy(message: str) -> str:
    remedies: Mapping[str, str] = {
        "full": "free space on its disk, then run the same command again: finished results are kept",
        "disk I/O": "its disk is full or failing; free space and run it again: finished results are kept",
        "readonly": "it cannot be written: set HARNESS_HOME to a folder that you can write to",
        "unable to open": "set HARNESS_HOME to a folder that you can write to",
        "locked": f"another program has locked it for {BUSY_TIMEOUT_S:.0f} s: try again when that program has ended",
    }
    return next((remedy for word, remedy in remedies.items() if word in message), "try again")

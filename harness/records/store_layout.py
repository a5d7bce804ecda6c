"""Defines the tables of the store and the steps from an older layout of them to the newest."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

#: Marks the file as a store of the harness (SQLite's application_id): "KHst".
APPLICATION_ID = 0x4B487374
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
#: Results of the fitness checks of ``judge.validation.validation``, one for each ``fitness_key``.
_FITNESS = """
CREATE TABLE fitness (key TEXT PRIMARY KEY, reasons TEXT NOT NULL) WITHOUT ROWID;
"""
#: The queue of ``serve``. Rows change, unlike records; ``request`` is empty once a row is finished.
_EVALUATIONS = """
CREATE TABLE evaluations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created_at REAL NOT NULL,
    deadline_at REAL,
    finished_at REAL,
    attempts INTEGER NOT NULL,
    problem TEXT NOT NULL,
    request TEXT NOT NULL,
    records TEXT NOT NULL,
    reward REAL,
    stage TEXT NOT NULL,
    error TEXT NOT NULL
);
CREATE INDEX evaluations_by_turn ON evaluations (state, priority DESC, number);
CREATE INDEX evaluations_by_client ON evaluations (client, state);
"""
#: Migration steps from each layout to the next. A layout's version is the number of steps that led
#: to it.
MIGRATIONS = (_FIRST_LAYOUT, _FITNESS, _EVALUATIONS)


def statements(script: str) -> Iterator[str]:
    """Yields the statements of a script one at a time.

    ``executescript`` would end the transaction.
    """
    statement = ""
    for line in script.strip().splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""

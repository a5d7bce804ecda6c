"""Tests each command on a store that it cannot use: exit code, message and an unchanged file."""

from __future__ import annotations

import ctypes
import os
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.records.store_layout import MIGRATIONS
from tests.bad_input.conftest import Place, solution
from tests.bad_input.test_results import GOOD

LIBC = ctypes.CDLL(None)
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
RECORD = EvaluationRecord.from_json(GOOD)


def filled(path: Path) -> None:
    with Store(path.parent, writable=True) as store:
        store.add(RECORD, "x" * 50_000)


def newer(path: Path) -> None:
    filled(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 99}")
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def of_another_program(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()


def random_bytes(path: Path) -> None:
    path.write_bytes(b"\xa5\x17" * 8000)


def garbage_behind_the_header(path: Path) -> None:
    filled(path)
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xa5" * (len(data) - 100))


def truncated(path: Path) -> None:
    filled(path)
    os.truncate(path, path.stat().st_size // 2 + 100)


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (newer, "newer harness"),
        (of_another_program, "another program"),
        (random_bytes, "damaged"),
        (garbage_behind_the_header, "damaged"),
        (truncated, "damaged"),
        (a_folder, "is not a file; set HARNESS_HOME"),
        (os.mkfifo, "is not a file; set HARNESS_HOME"),
    ],
)
def test_a_store_that_cannot_be_used_is_told_and_left_alone(
    new_place: Place, spoil: Callable[[Path], None], words: str
) -> None:
    path = new_place.home / "store.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    new_place.write("solutions/tiny/one.py", solution())
    commands = (["evaluate", "--case", "odd", "--device", "cpu", "--json"], ["list", "records"], ["show", "abcd"])
    for command in commands:
        ran = new_place(*command)
        assert (ran.code, ran.out) == (3, ""), command
        assert words in ran.err
        assert str(path) in ran.err
        assert "Traceback" not in ran.err
        assert (path.read_bytes() if path.is_file() else None) == before
    assert new_place.left_behind() == []


def test_an_empty_file_becomes_a_store(new_place: Place) -> None:
    (new_place.home / "store.db").touch()
    assert new_place("list", "records").out == "no records\n"
    new_place.write("solutions/tiny/one.py", solution())
    assert new_place("evaluate", "--case", "odd", "--device", "cpu", "--json").code == 0
    assert len(new_place("list", "records", "--json").rows) == 1


def test_a_home_that_cannot_be_made_is_told(new_place: Place) -> None:
    below = new_place.write("file", "") / "home"
    new_place.write("solutions/tiny/one.py", solution())
    ran = new_place("evaluate", "--case", "odd", "--device", "cpu", HARNESS_HOME=str(below))
    assert (ran.code, str(below) in ran.err, "Traceback" in ran.err) == (3, True, False), ran.err
    ran = new_place("list", "records", HARNESS_HOME=str(below))
    assert (ran.code, ran.out) == (0, "no records\n")


def heed_permissions() -> None:
    """Have the program that is started next be held to files' permissions, even as root."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@pytest.fixture
def locked(new_place: Place) -> Iterator[Callable[..., Any]]:
    """Runs a command that may read the home and write nothing there."""

    def run(*arguments: str, folder_mode: int, file_mode: int) -> subprocess.CompletedProcess[str]:
        (new_place.home / "store.db").chmod(file_mode)
        new_place.home.chmod(folder_mode)
        process = new_place.begin(*arguments, prepare=heed_permissions)
        out, err = new_place.finish(process)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    yield run
    new_place.home.chmod(0o755)


@pytest.fixture
def with_records(new_place: Place) -> None:
    """The place has a store, and a solution."""
    filled(new_place.home / "store.db")
    new_place.write("solutions/tiny/one.py", solution())


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o555, 0o444), (0o777, 0o444)])
def test_a_store_that_may_only_be_read_is_read(
    with_records: None, locked: Callable[..., Any], folder_mode: int, file_mode: int
) -> None:
    modes = {"folder_mode": folder_mode, "file_mode": file_mode}
    for command in (["list", "records"], ["show", "abcd"], ["export", "--csv"], ["list", "runs"]):
        ran = locked(*command, **modes)
        assert ran.returncode == 0, ran.stderr
        assert "tiny" in ran.stdout or "run-00000001" in ran.stdout
    ran = locked("evaluate", "--case", "odd", "--device", "cpu", "--json", **modes)
    assert (ran.returncode, ran.stdout) == (3, ""), ran.stderr
    assert "store.db" in ran.stderr
    assert "HARNESS_HOME" in ran.stderr
    assert "Traceback" not in ran.stderr


def small_files() -> None:
    """Let no file grow beyond 1 MB, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))


def test_a_disk_that_is_full_loses_nothing_that_was_printed(new_place: Place) -> None:
    new_place.write("solutions/tiny/a_small.py", solution())
    new_place.write("solutions/tiny/b_large.py", solution() + f"# {'x' * 2_000_000}\n")
    arguments = ["evaluate", "--case", "odd", "--device", "cpu", "--ahead", "0", "--json"]  # the small one first
    process = new_place.begin(*arguments, prepare=small_files)
    out, err = new_place.finish(process)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    assert "finished results are kept" in err
    assert out.count("\n") == 1
    again = new_place(*arguments)
    assert again.code == 0, again.err
    assert [(row["solution"], row["stored"]) for row in again.rows] == [
        ("tiny/a_small", True),
        ("tiny/b_large", False),
    ], f"{out}\n{err}\n{again.out}\n{again.err}"
    assert new_place.left_behind() == []

"""Tests ``cache``: what it counts, what it removes, and what it never touches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.compilation.cache import MAX_TOTAL_BYTES
from harness.compilation.housekeeping import MAX_LOGS_BYTES, clear, hold, keep_log
from harness.errors import HarnessError
from harness.executors.tools import tools_for

Harness = Callable[..., Any]
NOTHING = {"entries": 0, "libraries": 0, "bytes": 0, "kept": [], "max_bytes": None}
CONTENT = {
    "builds/aa11/0123456789abcdef.so": 3000,
    "builds/aa11/0123456789abcdee.so": 500,
    "builds/bb22/0123456789abcdef.so": 24,
    "builds/bb22/killed.partial": 40,
    "emulator/runtime-0123/libcuemu.so": 2000,
    "emulator/runtime-0123/libcuemu_torch.so": 1000,
    "logs/one.log": 70,
    "references/inductor/ab/cab.py": 300,
    "references/inductor/ab/cab.so": 700,
    "references/counts/0123.json": 24,
}
COUNTED = {
    "builds": {"entries": 2, "libraries": 3, "bytes": 3564, "kept": [], "max_bytes": MAX_TOTAL_BYTES},
    "emulator": {"entries": 1, "libraries": 2, "bytes": 3000, "kept": [], "max_bytes": None},
    "logs": {"entries": 1, "libraries": 0, "bytes": 70, "kept": [], "max_bytes": MAX_LOGS_BYTES},
    "references": {"entries": 2, "libraries": 1, "bytes": 1024, "kept": [], "max_bytes": None},
}
STORE = ("store.db", "store.db-wal", "store.db-shm")


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A home with builds, a runtime, a log and a store."""
    home = tmp_path / "used"
    for name, size in CONTENT.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    for name in STORE:
        (home / name).write_text("records")
    return home


def left(home: Path) -> set[str]:
    return {path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_info_counts_and_clear_removes_all_but_the_store(harness: Harness, used: Path) -> None:
    info = harness("cache", "info", "--json", HARNESS_HOME=str(used))
    assert info.code == 0, info.err
    assert info.rows == [{"home": str(used), "removed": False, **COUNTED}]
    told = harness("cache", "info", "--home", used)
    assert [line.split() for line in told.out.splitlines()] == [
        [str(used)],
        ["builds", "2", "solutions", "3", "libraries", "3.5", "KiB", "of", "8.0", "GiB"],
        ["emulator", "1", "runtimes", "2", "libraries", "2.9", "KiB"],
        ["logs", "1", "logs", "0", "libraries", "70", "B", "of", "256.0", "MiB"],
        ["references", "2", "kinds", "1", "libraries", "1.0", "KiB"],
    ]
    assert left(used) == {*CONTENT, *STORE}

    cleared = harness("cache", "clear", "--json", "--home", used)
    assert cleared.code == 0, cleared.err
    assert cleared.rows == [{"home": str(used), "removed": True, **COUNTED}]
    assert left(used) == set(STORE)
    again = harness("cache", "clear", "--home", used)
    assert again.code == 0
    assert again.out.startswith(f"removed from {used}:\n")
    assert again.out.count(" 0 B") == 4


@pytest.mark.parametrize("words", [("info",), ("clear",)])
def test_a_missing_home_is_empty_and_stays_missing(harness: Harness, tmp_path: Path, words: tuple[str]) -> None:
    home = tmp_path / "none"
    ran = harness("cache", *words, "--json", HARNESS_HOME=str(home))
    assert ran.code == 0, ran.err
    (row,) = ran.rows
    assert row["builds"] == {**NOTHING, "max_bytes": MAX_TOTAL_BYTES}
    assert row["logs"] == {**NOTHING, "max_bytes": MAX_LOGS_BYTES}
    assert [row["emulator"], row["references"]] == [NOTHING] * 2
    assert not home.exists()


def test_the_oldest_logs_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    for at, name in enumerate(("first", "second", "third")):
        os.utime(keep_log(folder, name, "x" * 10), (at, at))
    assert keep_log(folder, "first", "y" * 10, most_bytes=20).read_text() == "y" * 10
    assert left(folder) == {"first", "third"}
    keep_log(folder, "fourth", "", most=2)
    assert left(folder) == {"first", "fourth"}
    (folder / "a folder").mkdir()
    keep_log(folder, "large", "x" * 100, most_bytes=20)
    assert left(folder) == {"large"}


def test_links_are_not_followed(harness: Harness, used: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "mine.so").write_text("mine")
    (used / "builds" / "cc33").symlink_to(precious)
    (used / "builds" / "aa11" / "link.so").symlink_to(precious / "mine.so")
    (used / "emulator" / "runtime-4567").symlink_to(precious)
    shutil.rmtree(used / "logs")
    (used / "logs").symlink_to(precious)
    (row,) = harness("cache", "clear", "--json", "--home", used).rows
    assert row["builds"] == {**COUNTED["builds"], "entries": 3}
    assert row["emulator"] == {**COUNTED["emulator"], "entries": 2}
    assert row["logs"] == {**NOTHING, "max_bytes": MAX_LOGS_BYTES}
    assert (precious / "mine.so").read_text() == "mine"
    assert left(used) == {*STORE, "logs"}


def test_a_runtime_that_an_evaluation_holds_stays(home: Path, tmp_path: Path) -> None:
    built = Path(tools_for("cpu", home).libraries["core"]).parent
    mine = tmp_path / "home"
    shutil.copytree(built, mine / "emulator" / built.name)
    tools = tools_for("cpu", mine)
    assert tools.held is not None
    core = Path(tools.libraries["core"])
    assert core.is_relative_to(mine)
    emulator = clear(mine)[1]
    assert emulator.kept == (f"{core.parent.name}: in use by an evaluation",)
    assert core.is_file()
    os.close(tools.held)
    emulator = clear(mine)[1]
    assert (emulator.entries, emulator.libraries, emulator.kept) == (1, 2, ())
    assert hold(core) is None


def test_a_folder_that_is_being_built_stays(used: Path) -> None:
    (used / "emulator" / ".build-x1").mkdir()
    emulator = clear(used)[1]
    assert emulator.entries == 1
    assert emulator.kept == (".build-x1: being built; if not, the next build removes it",)
    assert (used / "emulator" / ".build-x1").is_dir()


def test_what_a_killed_clear_left_is_removed(used: Path) -> None:
    (used / ".removed-x" / "0").mkdir(parents=True)
    clear(used)
    assert left(used) == set(STORE)
    assert not (used / ".removed-x").exists()


def test_a_home_that_cannot_be_emptied_is_told(harness: Harness, used: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = harness("cache", "info", "--home", used / "store.db")
    assert (ran.code, ran.out) == (3, "")
    assert "store.db is not a folder" in ran.err
    assert "--home" in ran.err

    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(HarnessError, match=r"cannot empty .*Permission denied.*--home") as raised:
        clear(used)
    assert raised.value.exit_code == 3
    assert left(used) == {*CONTENT, *STORE}


@pytest.mark.parametrize(("arguments", "words"), [([], "Usage"), (["cler"], "clear"), (["clear", "--all"], "--all")])
def test_wrong_usage(harness: Harness, tmp_path: Path, arguments: list[str], words: str) -> None:
    ran = harness("cache", *arguments, HARNESS_HOME=str(tmp_path))
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err

"""Tests the size limit of the build cache: what it removes, also with several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.compilation import cache as cache_module
from harness.compilation.cache import BuildCache

KEY = "0123456789abcdef"
SIZE = 1000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    path = tmp_path / "worker" / "built.so"
    path.parent.mkdir()
    path.write_bytes(bytes(SIZE))
    return path


def used_at(home: Path, digest: str, seconds: int) -> None:
    os.utime(home / "builds" / digest, (seconds, seconds))


def held(home: Path) -> set[str]:
    return {path.name for path in (home / "builds").iterdir()}


def test_the_least_recently_used_solution_goes_first(home: Path, built: Path) -> None:
    cache = BuildCache(home / "builds", 3 * SIZE)
    for at, digest in enumerate(("first", "second", "third")):
        assert cache.keep(digest, KEY, built)
        used_at(home, digest, at)
    assert held(home) == {"first", "second", "third"}
    assert cache.libraries("first")  # which is a use
    assert cache.keep("fourth", KEY, built)
    assert held(home) == {"first", "third", "fourth"}
    assert {path.name for path in home.iterdir()} == {"builds"}  # nothing of the removal is left


def test_as_many_go_as_the_bound_asks_and_never_the_one_that_is_kept(home: Path, built: Path) -> None:
    roomy = BuildCache(home / "builds")
    for at, digest in enumerate(("first", "second", "third")):
        assert roomy.keep(digest, KEY, built)
        used_at(home, digest, at)
    tight = BuildCache(home / "builds", SIZE // 2)
    assert tight.keep("first", "f" * 16, built)
    assert held(home) == {"first"}
    assert tight.libraries("first").keys() == {KEY, "f" * 16}


def test_what_another_process_left_or_put_there_is_no_trouble(home: Path, built: Path, tmp_path: Path) -> None:
    cache = BuildCache(home / "builds", SIZE)
    assert cache.keep("first", KEY, built)
    (home / "builds" / "first" / "killed.partial").write_bytes(bytes(SIZE))
    (home / "builds" / "a file").write_text("of nobody")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(bytes(10 * SIZE))
    (home / "builds" / "link").symlink_to(outside)
    assert cache.keep("second", KEY, built)
    assert held(home) == {"second", "a file", "link"}
    assert (outside / "precious").is_file()


def test_a_solution_has_a_bound_of_its_own(home: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_SOLUTION_BYTES", 2 * SIZE)
    cache = BuildCache(home / "builds")
    assert [cache.keep("one", str(number) * 16, built) for number in range(3)] == [True, True, False]


def test_processes_that_fill_it_at_the_same_time_keep_it_bounded(home: Path, built: Path) -> None:
    code = """
import sys
from pathlib import Path
from harness.compilation.cache import BuildCache
cache = BuildCache(Path(sys.argv[1]), 5000)
for number in range(20):
    assert cache.keep(f"{sys.argv[3]}-{number}", "0123456789abcdef", Path(sys.argv[2]))
"""
    words = [sys.executable, "-c", code, str(home / "builds"), str(built)]
    processes = [subprocess.Popen([*words, name], stderr=subprocess.PIPE, text=True) for name in ("a", "b")]
    told = [process.communicate()[1] for process in processes]
    assert told == ["", ""]
    assert BuildCache(home / "builds", 5000).keep("last", KEY, built)
    assert "last" in held(home)
    assert len(held(home)) <= 5


def test_a_refusal_is_kept_beside_the_libraries(home: Path, built: Path) -> None:
    cache = BuildCache(home / "builds")
    assert cache.refusals("one") == {}
    assert cache.keep("one", KEY, built)
    assert cache.keep_refusal("one", "f" * 16, "message", "log")
    assert cache.refusals("one") == {"f" * 16: ("message", "log")}
    assert set(cache.libraries("one")) == {KEY}
    assert not cache.keep_refusal("one", "../f", "message", "log")
    assert not (home / "f.json").exists()


@pytest.mark.parametrize("damaged", [b"", b"{}", b"3", b'["only one"]', b'[1, "log", 2]', b"\xff\xfe"])
def test_a_damaged_refusal_is_none(home: Path, damaged: bytes) -> None:
    cache = BuildCache(home / "builds")
    assert cache.keep_refusal("one", KEY, "message", "log")
    (home / "builds" / "one" / f"{KEY}.json").write_bytes(damaged)
    assert cache.refusals("one") == {}


def test_refusals_are_bounded_as_libraries_are(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_LIBRARIES", 2)
    cache = BuildCache(home / "builds")
    assert [cache.keep_refusal("one", str(number) * 16, "m", "l") for number in range(3)] == [True, True, False]
    assert cache.keep_refusal("one", "0" * 16, "m", "l")


def test_a_file_that_grows_while_it_is_copied_takes_no_more_room(
    home: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = cache_module._has_room

    def grown(folder: Path, key: str, size: int) -> bool:
        found = seen(folder, key, size)
        os.truncate(built, 100 * SIZE)
        return found

    monkeypatch.setattr(cache_module, "_has_room", grown)
    cache = BuildCache(home / "builds")
    assert cache.keep("one", KEY, built)
    assert cache.libraries("one")[KEY].stat().st_size == SIZE

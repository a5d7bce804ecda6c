"""Tests parallel evaluation: builds ahead, lanes, and processes killed at random moments."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.kills import BROKEN, HONEST, KERNEL, PROBLEM, Batch, Killer
from harness.records.store import Store
from tests.conftest import Ran

Harness = Callable[..., Ran]


@pytest.fixture
def folder(own_home: Path, tmp_path: Path) -> Path:
    """A folder with the problem; ``own_home`` is its ``home``."""
    Batch(tmp_path, 0)
    return tmp_path


def test_what_is_built_ahead_ends_as_it_would_have(harness: Harness, folder: Path) -> None:
    """The second is built while the first is judged: what a compiler refuses is not compiled again."""
    for name, text in (("a", KERNEL), ("b", BROKEN)):
        (folder / "answers" / f"{name}.py").write_text(text)
    arguments = ("evaluate", "answers", "--problem", "problem.py", "--case", "small", "--device", "cpu", "--json")
    environment = {"HARNESS_HOME": str(folder / "home")}
    at_once = harness(*arguments, "--ahead", "0", cwd=folder, **environment)
    for path in (folder / "home" / "builds").glob("*/*"):
        path.unlink()
    ahead = harness(*arguments, "--fresh", "--ahead", "2", cwd=folder, **environment)
    again = harness(*arguments, "--fresh", "--ahead", "0", cwd=folder, **environment)
    refused = []
    for ran in (at_once, ahead, again):
        built, broken = sorted(ran.rows, key=lambda row: str(row["solution"]))
        assert (built["status"], broken["status"]) == ("PASSED", "BUILD_ERROR"), ran.err
        refused.append(broken)
    told = [row["message"].partition("\nfull log:")[0] for row in refused]
    messages = [re.sub(r"/\S+/solution/", "", message) for message in told]  # a worker's own folder
    assert messages[0] == messages[1] == messages[2]
    assert "nothing" in messages[0]
    assert refused[0]["build_s"] > 0
    assert refused[1]["build_s"] == 0
    assert refused[2]["build_s"] == 0  # a later run knows what the text alone decides


def test_a_killed_compiler_says_nothing_of_the_source(harness: Harness, folder: Path) -> None:
    (folder / "answers" / "a.py").write_text(KERNEL)
    compiler = folder / "g++"
    arguments = ("evaluate", "answers", "--problem", "problem.py", "--case", "small", "--device", "cpu", "--json")
    found = []
    for end in ("kill -KILL $$", ""):
        compiler.write_text(f'#!/bin/sh\ncase "$*" in *copies*) {end};; esac\nexec g++ "$@"\n')
        compiler.chmod(0o755)
        ran = harness(*arguments, cwd=folder, HARNESS_HOME=str(folder / "home"), CXX=str(compiler))
        found += [(row["status"], row["stored"]) for row in ran.rows]
        assert ran.code == (1 if end else 0), ran.err
        assert not end or "g++ was killed (SIGKILL)" in ran.rows[0]["message"]
    assert found == [("OUT_OF_MEMORY", False), ("PASSED", False)]


def test_killed_workers_builders_and_lanes_lose_and_double_nothing(folder: Path) -> None:
    killer = Killer(Batch(folder, 16, is_mixed=True), random.Random(5), 5, (0.1, 0.6), ("--lanes", "2"))
    assert killer.run() == []
    assert killer.killed


def test_a_killed_driver_goes_on_where_it_was(folder: Path) -> None:
    batch = Batch(folder, 12)
    driver = batch.start()
    assert driver.stdout is not None
    for _ in range(4):
        driver.stdout.readline()
    driver.kill()
    driver.communicate()
    assert batch.is_still(), batch.left_over()
    driver = batch.start()
    out, err = driver.communicate()
    assert driver.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert Counter(row["solution"] for row in rows) == Counter(batch.promised.keys())
    assert sum(row["stored"] for row in rows) >= 4
    with Store(folder / "home") as store:
        kept = Counter(record.solution_path for record in store.newest_passed("problem", "small", 1000))
    assert len(kept) == 12
    assert max(kept.values()) == 1


def test_a_problem_may_set_limits_and_a_flag_counts_over_them(harness: Harness, folder: Path) -> None:
    (folder / "problem.py").write_text(f"{PROBLEM}\nTIMEOUT_S = 7\nBUILD_TIMEOUT_S = 8.5\n")
    (folder / "answers" / "a.py").write_text(HONEST)
    arguments = ("evaluate", "answers", "--problem", "problem.py", "--case", "small", "--device", "cpu", "--json")
    found = []
    for options in ((), ("--timeout", "60")):
        (row,) = harness(*arguments, *options, cwd=folder, HARNESS_HOME=str(folder / "home")).rows
        found.append((row["status"], row["policy"]["timeout_s"], row["policy"]["build_timeout_s"]))
    assert found == [("PASSED", 7.0, 8.5), ("PASSED", 60.0, 8.5)]
    (folder / "problem.py").write_text(f"{PROBLEM}\nTIMEOUT_S = -1\n")
    ran = harness(*arguments, cwd=folder, HARNESS_HOME=str(folder / "home"))
    assert ran.code == 2
    assert "TIMEOUT_S is -1" in ran.err

"""Tests unfit problems: their verdicts are marked, and the checks run once per case."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime

Harness = Callable[..., Any]

PROBLEM = """
import torch
from torch import nn

sign = 1
n = 64
CASES = {"full": {}, "signed": {"sign": 0}, "odd": {"n": 7}}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(n, 8) if sign else torch.randn(n, 8)]


def get_init_inputs():
    return []
"""
SOLUTION = """
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 1
"""
WORDS = "the input x would pass as the output"


@pytest.fixture
def own_home(tmp_path: Path, home: Path) -> Path:
    """A HARNESS_HOME with a store of its own, and the emulator's runtime of all tests."""
    folder = tmp_path / "home"
    folder.mkdir()
    build_runtime(home / "emulator")
    (folder / "emulator").symlink_to(home / "emulator")
    (tmp_path / "relu.py").write_text(PROBLEM)
    (tmp_path / "same.py").write_text(SOLUTION)
    return folder


def _evaluate(harness: Harness, home: Path, *more: str) -> Any:
    """What ``evaluate`` says of a solution that returns its input."""
    return harness(
        "evaluate", home.parent / "same.py", "--problem", home.parent / "relu.py", "--device", "cpu", *more,
        HARNESS_HOME=str(home),
    )  # fmt: skip


def _kept(home: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(home / "store.db")) as connection, connection:
        return [text for (text,) in connection.execute("SELECT reasons FROM fitness")]


def test_a_verdict_on_an_unfit_case_is_marked(harness: Harness, own_home: Path) -> None:
    ran = _evaluate(harness, own_home, "-v")
    rows = {line.split()[1]: line for line in ran.out.splitlines() if line.startswith(str(own_home.parent / "same"))}
    assert "PASSED unfit" in rows["full"]
    assert "PASSED unfit" in rows["odd"]
    assert "WRONG_OUTPUT" in rows["signed"]
    assert "WRONG_OUTPUT unfit" not in rows["signed"]
    assert ran.out.count("unfit: relu full cannot tell") == 1
    assert WORDS in ran.out
    assert ran.code == 1  # by the signed case: a mark changes no verdict


def test_the_record_says_why_and_a_stored_one_too(harness: Harness, own_home: Path) -> None:
    first, again = (_evaluate(harness, own_home, "--json", "--case", "full") for _ in range(2))
    for ran, stored in ((first, False), (again, True)):
        (row,) = ran.rows
        (reason,) = row["unfit"]
        assert WORDS in reason
        assert (row["status"], row["stored"]) == ("PASSED", stored)
        assert ran.err.count("unfit: relu full cannot tell") == 1
    (signed,) = _evaluate(harness, own_home, "--json", "--case", "signed").rows
    assert (signed["status"], signed["unfit"]) == ("WRONG_OUTPUT", [])
    shown = harness("show", first.rows[0]["record"], HARNESS_HOME=str(own_home))
    assert "unfit: relu full cannot tell" in shown.out


def test_the_checks_run_once_for_a_case_also_on_lanes(harness: Harness, own_home: Path) -> None:
    sources = [SOLUTION.replace("x * 1", f"x * {factor}.0") for factor in range(1, 5)]
    folder = own_home.parent
    for number, source in enumerate(sources):
        (folder / f"by_{number}.py").write_text(source)
    files = [folder / f"by_{number}.py" for number in range(4)]
    problem = folder / "relu.py"
    # Each run of the body leaves a mark where the checks draw: under their seed alone, and not under a judge's.
    problem.write_text(
        PROBLEM.replace(
            "def get_inputs():",
            "def get_inputs():\n"
            "    import inspect\n"
            "    if any(frame.function == '_seeds' for frame in inspect.stack()):\n"
            f"        print('x', file=open({str(folder / 'marks')!r}, 'a'))",
        )
    )
    common = ("--problem", problem, "--device", "cpu", "--case", "full", "--json")
    ran = harness("evaluate", *files, *common, "--lanes", "2", HARNESS_HOME=str(own_home))
    assert [row["unfit"] != [] for row in ran.rows] == [True] * 4, ran.err
    once = (folder / "marks").read_text()
    assert len(_kept(own_home)) == 1
    harness("evaluate", *files, *common, "--fresh", HARNESS_HOME=str(own_home))
    assert (folder / "marks").read_text() == once  # another command takes it from the store
    assert once.count("x") == 2  # the seeds' check draws twice


def test_a_store_of_the_first_layout_learns_of_fitness(harness: Harness, own_home: Path) -> None:
    _evaluate(harness, own_home, "--json", "--case", "odd")
    with contextlib.closing(sqlite3.connect(own_home / "store.db")) as connection, connection:
        for table in ("fitness", "evaluations"):  # of later layouts
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 1")
    (row,) = _evaluate(harness, own_home, "--json", "--case", "odd", "--fresh").rows
    assert len(row["unfit"]) == 1
    assert [json.loads(text) for text in _kept(own_home)] == [row["unfit"]]
    assert len(harness("export", "--jsonl", HARNESS_HOME=str(own_home)).rows) == 2

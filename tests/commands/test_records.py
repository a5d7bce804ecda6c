"""Tests stored records: answers from the store, and ``list``, ``show`` and ``export``."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime
from harness.records.store import Store
from tests.conftest import Ran

Harness = Callable[..., Any]
PROBLEM = """
import torch, torch.nn as nn

n = 6
CASES = {"full": {}, "odd": {"n": 5}}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return torch.tanh(x * self.w)


def get_inputs():
    return [torch.randn(n, 3)]


def get_init_inputs():
    return []
"""
HONEST = PROBLEM.replace("Model(nn", "ModelNew(nn")
WRONG = HONEST.replace("torch.tanh", "print('\\x1b[31mhello'); return torch.sin")


class Place:
    """A root with two solutions of one problem, and a home of its own."""

    first: Ran
    again: Ran
    listed: Ran

    def __init__(self, harness: Harness, folder: Path):
        self._harness = harness
        self.root, self.home = folder / "root", folder / "home"
        for path, text in (
            ("problems/tiny.py", PROBLEM),
            ("solutions/tiny/honest.py", HONEST),
            ("solutions/tiny/wrong.py", WRONG),
        ):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)

    def __call__(self, *arguments: str | Path) -> Any:
        return self._harness(*arguments, cwd=self.root, HARNESS_HOME=str(self.home))


@pytest.fixture(scope="module")
def place(harness: Harness, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place where everything was evaluated once, by ``evaluate --json`` with the secret abcdef."""
    made = Place(harness, tmp_path_factory.mktemp("place"))
    made.home.mkdir()
    build_runtime(home / "emulator")
    (made.home / "emulator").symlink_to(home / "emulator")  # built once for all tests
    made.first = made("evaluate", "--device", "cpu", "--json", "--seed", "abcdef", "--ahead", "0")
    made.again = made("evaluate", "--device", "cpu", "--json")  # before another test judges anything here
    made.listed = made("list", "records", "--json")
    return made


def test_what_was_judged_is_answered_from_the_store(place: Place) -> None:
    rows = place.first.rows
    assert [(row["solution"], row["case"], row["status"], row["stored"]) for row in rows] == [
        ("tiny/honest", "full", "PASSED", False),
        ("tiny/honest", "odd", "PASSED", False),
        ("tiny/wrong", "full", "WRONG_OUTPUT", False),
        ("tiny/wrong", "odd", "WRONG_OUTPUT", False),
    ]
    again = place.again
    assert again.code == 1
    order = {(row["solution"], row["case"]): number for number, row in enumerate(rows)}
    told = sorted(again.rows, key=lambda row: order[row["solution"], row["case"]])  # as each is found
    assert [{**row, "stored": False} for row in told] == rows
    assert all(row["stored"] for row in again.rows)
    table = place("evaluate", "tiny/honest", "--device", "cpu", "-v")
    assert table.code == 0
    assert table.out.count("stored") == 3  # two rows and the line that explains it
    assert place.listed.out.count("\n") == 4


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        (["--seed", "abcdef"], True),
        (["--seed", "123456"], False),
        (["--fresh"], False),
        (["--forward-only"], False),
        (["--no-timing"], True),  # on the CPU nothing is timed anyway
        (["--timeout", "61"], False),
        (["--set", "n=5"], False),
    ],
)
def test_another_question_is_judged(place: Place, options: list[str], stored: bool) -> None:
    case = [] if "--set" in options else ["--case", "odd"]
    ran = place("evaluate", "tiny/honest", "--device", "cpu", "--json", *case, *options)
    (row,) = ran.rows
    assert row["status"] == "PASSED"
    assert row["stored"] is stored
    if options[0] == "--seed":
        assert row["seed"] == options[1]


def test_a_changed_file_is_judged_again_and_the_old_one_is_still_known(place: Place) -> None:
    path = place.root / "solutions" / "tiny" / "changing.py"
    path.write_text(HONEST)
    chosen = ("evaluate", "tiny/changing", "--device", "cpu", "--case", "odd", "--json")
    # The text is that of tiny/honest, which has a record: the verdict is about the text.
    (same,) = place(*chosen).rows
    assert (same["stored"], same["solution"]) == (True, "tiny/changing")
    path.write_text(HONEST + "# changed\n")
    (first,) = place(*chosen).rows
    assert first["stored"] is False
    path.unlink()
    shown = place("show", first["record"])
    assert shown.code == 0
    assert f"python -m harness show {first['record']} --source > judged.py\n" in shown.out
    assert "evaluate judged.py" in shown.out
    assert place("show", first["record"], "--source").out == HONEST + "# changed\n"


def test_show_says_everything_and_the_command_that_repeats_it(place: Place) -> None:
    row = place.first.rows[1]
    shown = place("show", row["record"][:6])
    assert shown.code == 0, shown.err
    for words in (row["record"], row["run"], "PASSED", row["digest"], "gradient of w [3] float32", "torch"):
        assert words in shown.out
    assert json.loads(place("show", row["record"], "--json").out) == {**row, "stored": True}
    repeat = shown.out[shown.out.index("python -m harness") :].strip()
    words = shlex.split(repeat)
    ran = subprocess.run(
        [sys.executable, *words[1:], "--json", "--home", str(place.home)], capture_output=True, text=True, check=True
    )
    (repeated,) = [json.loads(line) for line in ran.stdout.splitlines()]
    for name in ("status", "seed", "digest"):
        assert repeated[name] == row[name], name
    for name, bits in row["digests"].items():  # the last trial is on a draw that no other evaluation gets
        assert repeated["digests"][name][:-1] == bits[:-1], name
    assert repeated["record"] != row["record"]


def test_what_a_candidate_prints_cannot_drive_the_terminal(place: Place) -> None:
    row = place.first.rows[2]
    shown = place("show", row["record"])
    assert "\x1b" not in shown.out
    assert "\\x1b[31mhello" in shown.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show"], 2, "Missing argument"),
        (["show", "0000"], 2, "no record '0000'"),
        (["show", "../../etc/passwd"], 2, "no record"),
        (["show", "x", "--source", "--json"], 2, "cannot be used together"),
        (["export"], 2, "--jsonl or --csv"),
        (["export", "--csv", "--jsonl"], 2, "--csv and --jsonl cannot be used together"),
        (["export", "--csv", "--run", "run-none"], 2, "no run 'run-none'"),
        (["export", "--csv", "-o", "/nowhere/x.csv"], 2, "cannot write /nowhere/x.csv"),
        (["list"], 0, "tiny"),
        (["list", "solutions"], 0, "tiny/honest"),
        (["list", "templates"], 0, "no templates"),
        (["list", "runs"], 0, "run-"),
        (["list", "records", "--problem", "none"], 0, "no records"),
        (["list", "recrods"], 2, "records"),
        (["list", "records", "--limit", "0"], 2, "--limit"),
        (["evaluate", "--fail-below", "1.2", "--device", "cpu"], 2, "the CPU emulator does not measure speed"),
        (["evaluate", "--fail-below", "-1"], 2, "--fail-below"),
    ],
)
def test_commands(place: Place, arguments: list[str], code: int, words: str) -> None:
    ran = place(*arguments)
    assert (ran.code, words in ran.out + ran.err) == (code, True), ran.out + ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("name", ["compare", "export", "list", "show"])
def test_help_has_an_example(place: Place, name: str) -> None:
    ran = place(name, "--help")
    assert ran.code == 0
    assert f"python -m harness {name}" in ran.out


def test_export_holds_every_record(place: Place) -> None:
    first = place.first.rows
    run = first[0]["run"]
    lines = place("export", "--jsonl", "--run", run).rows
    assert lines == [{name: value for name, value in row.items() if name != "stored"} for row in first]
    rows = list(csv.DictReader(io.StringIO(place("export", "--csv", "--problem", "tiny", "--run", run).out)))
    assert [row["record"] for row in rows] == [row["record"] for row in first]
    assert rows[0]["status"] == "PASSED"
    assert rows[0]["speedup_forward"] == ""
    assert 0 < float(rows[0]["output_share"]) < 1


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+2", "'=1+2"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\\x0d=1"),
        ("\uff1d1", "'\uff1d1"),
        ("\x1b[31mred\x07\u202e", "\\x1b[31mred\\x07\\u202e"),
        ('1 = 1, "quoted"\nsecond line', '1 = 1, "quoted"\nsecond line'),
    ],
)
def test_a_cell_is_no_formula_and_drives_no_terminal(
    harness: Harness, place: Place, tmp_path: Path, text: str, cell: str
) -> None:
    with Store(place.home) as store:
        record = store.get(place.first.rows[0]["record"])
    told = dataclasses.replace(record, message=text, solution=text, forward_ms=-1.5)
    with Store(tmp_path / "other", writable=True) as store:
        store.add(told, "")
    ran = harness("export", "--csv", "--home", tmp_path / "other")
    (row,) = csv.DictReader(io.StringIO(ran.out, newline=""))
    assert (row["message"], row["solution"], row["forward_ms"]) == (cell, cell, "-1.5")
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("arguments", [["--help"], ["list", "records"], ["show", "{record}"], ["export", "--csv"]])
def test_reading_starts_without_torch(place: Place, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    record = place.first.rows[0]["record"]
    words = [sys.executable, "-m", "harness", *(one.format(record=record) for one in arguments)]
    path = f"{tmp_path}:{Path(__file__).resolve().parents[2]}"
    environment = {**os.environ, "PYTHONPATH": path, "HARNESS_HOME": str(place.home)}
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout

"""Tests many candidates in one command: from a stream, from a folder, and with early stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import HONEST, PROBLEM, WRONG
from harness.commands.lines import LineReader

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the problem, and two solutions beside each other."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "a_wrong.py").write_text(WRONG)
    (tmp_path / "answers" / "b_honest.py").write_text(HONEST)
    (tmp_path / "answers" / "notes.txt").write_text("no solution")
    return tmp_path


class Stream:
    """A command that reads lines; results are read as they come."""

    def __init__(self, home: Path, folder: Path, *options: str):
        command = [sys.executable, "-m", "harness", "evaluate", "-", "--device", "cpu", "--case", "small", "--json"]
        self._process = subprocess.Popen(
            [*command, *options],
            cwd=folder,
            env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def write(self, *lines: dict[str, Any] | bytes) -> None:
        assert self._process.stdin is not None
        for line in lines:
            self._process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> tuple[int, list[dict[str, Any]], str]:
        out, err = self._process.communicate()
        return self._process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()

    def wait(self) -> None:
        """Waits for the command to end by itself."""
        self._process.wait(600)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def stream(own_home: Path, folder: Path) -> Iterator[Stream]:
    """A stream of candidates for the problem."""
    made = Stream(own_home, folder, "--problem", "problem.py", "--seed", "ab")
    yield made
    made.kill()


def test_lines_are_judged_as_they_come_and_bad_ones_are_left_out(stream: Stream) -> None:
    stream.write({"source": HONEST, "tag": "first"})
    first = stream.read()  # while the stream is open
    assert (first["tag"], first["status"], first["solution"], first["stored"]) == ("first", "PASSED", "first", False)
    stream.write(
        b"\n",
        b"{nonsense\n",
        b"[1]\n",
        {"source": HONEST, "tga": "x"},
        {"source": 3},
        {"tag": "neither"},
        {"source": HONEST, "path": "answers/b_honest.py"},
        {"source": HONEST, "problem": "no_such_problem"},
        {"path": "answers/missing.py"},
        {"source": HONEST, "tag": "x" * 201},
        b"\xff\xfe\n",
        {"path": "answers/a_wrong.py", "tag": "from a file"},
        {"source": HONEST, "tag": "the same again"},
        {"source": HONEST + "# another\n"},
        {"source": "not python\ud800", "tag": "no program"},
    )
    code, rows, err = stream.end()
    assert code == 2
    refused, judged = [row for row in rows if row["status"] is None], [row for row in rows if row["status"]]
    assert [(row["tag"], row["status"], row["stored"]) for row in judged] == [
        ("from a file", "WRONG_OUTPUT", False),
        ("the same again", "PASSED", True),
        ("", "PASSED", False),
        ("no program", "LOAD_ERROR", False),
    ]
    assert [row["solution"] for row in judged] == ["answers/a_wrong.py", "the same again", "line 15", "no program"]
    assert [row["solution"] for row in refused] == [f"line {number}" for number in range(3, 13)]
    assert [row["tag"] for row in refused if row["tag"]] == ["neither"]
    assert all(row["error"].startswith(f"{row['solution']} of standard input: ") for row in refused)
    for number, words in (
        (3, "not JSON"),
        (4, "must be a JSON object"),
        (5, "Did you mean 'tag'"),
        (6, "'source' must be a string"),
        (7, "'source' or 'path'"),
        (8, "give either"),
        (9, "no problem 'no_such_problem'"),
        (10, "no such file: answers/missing.py"),
        (11, "the limit is 200"),
        (12, "not JSON"),
    ):
        (told,) = [line for line in err.splitlines() if f"line {number} of standard input" in line]
        assert words in told
    assert "Traceback" not in err


def test_a_line_may_set_constants(stream: Stream) -> None:
    stream.write({"source": HONEST, "set": {"n": 5}}, {"source": HONEST, "set": {"m": 5}}, {"source": HONEST, "set": 5})
    code, rows, err = stream.end()
    assert code == 2
    assert [(row["case"], row["constants"]) for row in rows if "constants" in row] == [("custom", {"n": 5})]
    assert "no constant 'm'" in err
    assert "'set' must be an object" in err


def test_a_stream_without_a_candidate_is_told(stream: Stream) -> None:
    stream.write(b"\n")
    code, rows, told = stream.end()
    assert (code, rows) == (2, [])
    assert "holds no candidate" in told


def test_a_line_names_its_problem_where_not_all_have_one(own_home: Path, folder: Path) -> None:
    stream = Stream(own_home, folder)
    stream.write({"source": HONEST}, {"source": HONEST, "problem": "problem.py", "tag": "t"})
    code, rows, err = stream.end()
    assert (code, [(row["tag"], row["status"]) for row in rows]) == (2, [("", None), ("t", "PASSED")])
    assert "line 1 of standard input: name the 'problem'" in err


def test_each_candidate_of_a_problem_that_does_not_run_gets_a_line(own_home: Path, folder: Path) -> None:
    fault = "raise ArithmeticError('in it')\n"
    (folder / "forward.py").write_text(PROBLEM.replace("return torch.tanh(x)", fault))
    (folder / "body.py").write_text(PROBLEM + fault)
    stream = Stream(own_home, folder, "--problem", "forward.py")
    stream.write({"source": HONEST, "tag": "a"}, {"source": HONEST + "# b\n", "tag": "b"})
    stream.write({"source": HONEST, "tag": "c", "problem": "body.py"}, {"source": HONEST, "problem": "problem.py"})
    code, rows, err = stream.end()
    assert code == 2
    assert [(row["tag"], row["problem"], row["case"], row["status"]) for row in rows] == [
        ("a", "forward", "small", None),
        ("b", "forward", "small", None),
        ("c", "body", "small", None),
        ("", "problem", "small", "PASSED"),
    ]
    assert all("ArithmeticError: in it" in row["error"] for row in rows[:3])
    assert "Traceback" not in err


@pytest.mark.parametrize("lanes", ["1", "2"])
def test_a_generator_may_wait_for_each_result_before_it_goes_on(own_home: Path, folder: Path, lanes: str) -> None:
    stream = Stream(own_home, folder, "--problem", "problem.py", "--lanes", lanes)
    for line in ({"source": HONEST}, {"source": WRONG}, {"tag": "no candidate"}, {"source": HONEST + "# again\n"}):
        stream.write(b"\n", line)
        row = stream.read()
        assert row["status"] == (None if "tag" in line else "WRONG_OUTPUT" if line["source"] == WRONG else "PASSED")
    assert stream.end()[0] == 2


def test_a_line_that_is_too_long_is_refused_and_takes_no_memory() -> None:
    read, write = os.pipe()
    reader = LineReader(read, 10)
    os.write(write, b"0123456789abcdef")
    assert not reader.is_ready()
    os.write(write, b"ghi")
    assert not reader.is_ready()
    os.write(write, b"jkl\nnext\nhalf")
    assert reader.is_ready()
    assert len(reader.readline()) > 11
    assert reader.is_ready()
    assert reader.readline() == b"next\n"
    assert not reader.is_ready()
    os.close(write)
    assert reader.is_ready()
    assert [reader.readline(), reader.readline()] == [b"half", b""]
    os.close(read)


def test_a_stream_goes_with_no_other_selector(harness: Callable[..., Any]) -> None:
    ran = harness("evaluate", "-", "group_norm")
    assert ran.code == 2
    assert "cannot be combined with other selectors" in ran.err


def test_a_folder_means_the_solutions_in_it(harness: Callable[..., Any], folder: Path) -> None:
    options = ("--problem", folder / "problem.py", "--device", "cpu", "--seed", "ab")
    ran = harness("evaluate", folder / "answers", *options, "--case", "small", "--json")
    assert sorted(Path(row["solution"]).name for row in ran.rows) == ["a_wrong.py", "b_honest.py"]
    assert ran.code == 1
    (folder / "empty").mkdir()
    nothing = harness("evaluate", folder / "empty", *options)
    assert nothing.code == 2
    assert "no solution (*.py) in the folder" in nothing.err


@pytest.mark.parametrize(
    ("option", "words", "judged"),
    [
        (("--fail-fast",), "stopped at the first candidate that did not pass (--fail-fast)", ["a_wrong.py"]),
        (("--max-hours", "1e-9"), "stopped after 1e-09 hours (--max-hours)", ["a_wrong.py"]),
        (("--max-hours", "1"), "", ["a_wrong.py", "a_wrong.py", "b_honest.py", "b_honest.py"]),
    ],
    ids=str,
)
def test_what_is_left_is_judged_by_the_same_command(
    harness: Callable[..., Any], folder: Path, own_home: Path, option: tuple[str, ...], words: str, judged: list[str]
) -> None:
    command = ("evaluate", folder / "answers", "--problem", folder / "problem.py", "--device", "cpu", "--json")
    command += ("--ahead", "0")  # in the order of their names
    own = {"HARNESS_HOME": str(own_home)}
    ran = harness(*command, *option, **own)
    assert [Path(row["solution"]).name for row in ran.rows] == judged
    assert ran.code == 1
    assert words in ran.err
    assert ("run the same command again to continue" in ran.err) == bool(words)
    again = harness(*command, **own)
    assert [row["stored"] for row in again.rows] == [True] * len(judged) + [False] * (4 - len(judged))


def test_whoever_stops_early_has_not_passed(harness: Callable[..., Any], folder: Path) -> None:
    (folder / "answers" / "a_wrong.py").unlink()
    ran = harness(
        "evaluate", folder / "answers", "--problem", folder / "problem.py", "--device", "cpu", "--json",
        "--max-hours", "1e-9", "--fresh"
    )  # fmt: skip
    assert [row["status"] for row in ran.rows] == ["PASSED"]
    assert ran.code == 1


def test_a_problem_that_has_changed_is_read_again(stream: Stream, folder: Path) -> None:
    stream.write({"source": HONEST})
    assert stream.read()["status"] == "PASSED"
    (folder / "problem.py").write_text(PROBLEM.replace("torch.tanh(x)", "torch.sinh(x)"))
    stream.write({"source": HONEST}, {"source": WRONG})
    assert [stream.read()["status"], stream.read()["status"]] == ["WRONG_OUTPUT", "PASSED"]


def test_the_time_limit_holds_while_nothing_comes(own_home: Path, folder: Path) -> None:
    hours = ("--problem", "problem.py", "--max-hours", "0.01")  # 36 seconds
    stream = Stream(own_home, folder, *hours)
    stream.write({"source": HONEST, "tag": "first"})
    assert stream.read()["status"] == "PASSED"
    stream.wait()  # standard input stays open
    code, rows, err = stream.end()
    assert (code, rows) == (1, [])
    assert "stopped after 0.01 hours (--max-hours)" in err


def test_who_sends_nothing_in_time_has_not_passed(own_home: Path, folder: Path) -> None:
    stream = Stream(own_home, folder, "--problem", "problem.py", "--max-hours", "1e-9")
    stream.wait()
    code, rows, err = stream.end()
    assert (code, rows) == (1, [])
    assert "stopped after 1e-09 hours (--max-hours)" in err

"""A machine on which nothing compiles is no candidate's fault."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import BROKEN, KERNEL, PROBLEM

REPOSITORY = Path(__file__).resolve().parents[2]
LINK = KERNEL.replace("is_python_module", "extra_ldflags=['-lno_such_library'], is_python_module")
#: Finds fault with whatever a worker compiles.
COMPILER = """#!/bin/sh
case "$*" in *harness-worker-*) echo "cc1plus: fatal trouble with the machine" >&2; exit 1;; esac
exec g++ "$@"
"""


@pytest.fixture
def broken_compiler() -> Iterator[Path]:
    """A compiler that works for the judge alone; it lies where candidates may read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own" / "bin" / "compiler"
        path.parent.mkdir(parents=True)
        path.write_text(COMPILER)
        for one in (path, path.parent, path.parent.parent, Path(folder)):
            one.chmod(0o755)
        yield path


def judged(harness: Callable[..., Any], folder: Path, answer: str, **environment: str) -> Any:
    """Evaluates an answer on one case."""
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "answer.py").write_text(answer)
    what = (folder / "answer.py", "--problem", folder / "problem.py", "--case", "small", "--device", "cpu", "--json")
    return harness("evaluate", *what, **environment)


@pytest.mark.parametrize("ahead", ["0", "1"])
def test_a_compiler_that_builds_nothing_is_the_machine_s_fault(
    harness: Callable[..., Any], tmp_path: Path, broken_compiler: Path, ahead: str
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "answers").mkdir()
    for name, text in (("a", KERNEL), ("b", KERNEL.replace("// 0", "// 1"))):
        (tmp_path / "answers" / f"{name}.py").write_text(text)
    what = (tmp_path / "answers", "--problem", tmp_path / "problem.py", "--device", "cpu", "--json", "--ahead", ahead)
    ran = harness("evaluate", *what, CXX=str(broken_compiler))
    assert ran.code == 3, ran.err
    assert [row["status"] for row in ran.rows] == ["HARNESS_ERROR"] * 4  # two cases each
    for row in ran.rows:
        assert "nothing compiles on this machine" in row["message"]
        assert "cc1plus: fatal trouble with the machine" in row["message"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (BROKEN, "nothing"),
        (LINK, "no_such_library"),
    ],
    ids=["compiler", "linker"],
)
def test_a_source_that_does_not_build_is_the_candidate_s(
    harness: Callable[..., Any], tmp_path: Path, answer: str, words: str
) -> None:
    ran = judged(harness, tmp_path, answer)
    assert ran.code == 1, ran.err
    (row,) = ran.rows
    assert row["status"] == "BUILD_ERROR"
    assert words in row["message"]


def test_a_temporary_folder_with_a_line_break_is_refused_before_anything_is_judged(tmp_path: Path) -> None:
    place = tmp_path / "a\nb"
    place.mkdir()
    ran = subprocess.run(  # in a process of its own, which has not looked for the folder before
        [sys.executable, "-m", "harness", "evaluate", "group_norm/plain", "--device", "cpu"],
        env={**os.environ, "HARNESS_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(place)},
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (3, "")
    (line,) = ran.stderr.splitlines()
    assert "has a line break in its name" in line
    assert "set TMPDIR to another folder" in line

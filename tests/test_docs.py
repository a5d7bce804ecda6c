"""The commands that the documentation shows do what it says, in an empty folder, in the order shown."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parent.parent
PREFIX = "python -m harness "


def commands(document: str, *headings: str) -> list[list[str]]:
    """The harness's commands in the code blocks under some headings, ``&&`` taken apart."""
    text = (REPOSITORY / document).read_text()
    found = []
    for heading in headings:
        (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        blocks = [line.strip() for line in section.splitlines() if line.startswith("    ")]
        lines = [part.strip() for line in blocks for part in line.split("&&")]
        found += [shlex.split(line.removeprefix(PREFIX), comments=True) for line in lines if line.startswith(PREFIX)]
    return found


SECTIONS = ("Add a problem", "Add a template", "Compare two candidates")


def test_the_commands_of_contributing_do_what_it_says(harness: Harness, tmp_path: Path) -> None:
    shown = commands("CONTRIBUTING.md", *SECTIONS)
    assert [words[0] for words in shown] == [
        *("new", "validate", "new", "render", "evaluate"),
        *("render", "evaluate", "compare"),
    ]
    for words in shown:
        ran = harness(*words, cwd=tmp_path, HARNESS_DEVICE="cpu")
        assert ran.code == 0, f"{words}: {ran.out}{ran.err}"
        if words[0] == "evaluate":
            cases = 2 if "/" in words[1] else 4
            assert ran.out.count("PASSED") == cases
    assert "my_op/narrow" in ran.out
    assert "no winner: speed was not measured" in ran.out


def test_the_readme_takes_an_answer_in(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    problem = (REPOSITORY / "problems" / "group_norm.py").read_text()
    (tmp_path / "problems" / "group_norm.py").write_text(problem)
    answer = problem.replace("class Model(", "class ModelNew(")
    (tmp_path / "answer.txt").write_text(f"<think>\nwell\n</think>\nHere:\n```python\n{answer}```\n")
    shown = commands("README.md", "Take in a model's answer")
    assert [words[0] for words in shown] == ["extract"] * 3
    for words in shown:
        ran = harness(*words, cwd=tmp_path, HARNESS_DEVICE="cpu")
        assert ran.code == 0, f"{words}: {ran.out}{ran.err}"
        assert ("PASSED" in ran.out) == ("--evaluate" in words)
    assert (tmp_path / "solutions" / "group_norm" / "answer.py").read_bytes() == (tmp_path / "mine.py").read_bytes()


def test_the_readme_shows_the_same_commands() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for words in commands("CONTRIBUTING.md", *SECTIONS):
        if words == ["evaluate", "my_op/my_op"]:
            continue  # the README evaluates all of my_op at once
        assert PREFIX + shlex.join(words) in readme


def test_the_library_does_what_its_page_says(home: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", (REPOSITORY / "docs" / "library.md").read_text(), re.M | re.S)
    (tmp_path / "ask.py").write_text(code)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "ask.py"],
        cwd=tmp_path,
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    first, plain, *others = ran.stdout.splitlines()
    assert (first, plain) == ("PASSED True", "PASSED, no kernel of its own 0.0")
    assert sorted(line.split(" ")[:2] for line in others) == [[str(number), "WRONG_OUTPUT"] for number in range(3)]

"""Tests the plain solutions: they are short, and right on odd sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PLAIN = sorted((REPOSITORY / "solutions").glob("*/plain.py"))


def test_every_problem_has_a_plain_solution() -> None:
    problems = {path.stem for path in (REPOSITORY / "problems").glob("*.py")}
    assert {path.parent.name for path in PLAIN} == problems


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.parent.name)
def test_a_plain_solution_has_at_most_250_lines(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert 100 <= len(lines) <= 250
    assert max(map(len, lines[4:])) <= 120

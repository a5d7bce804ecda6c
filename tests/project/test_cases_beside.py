"""Tests ``cases.toml``, which declares cases of problem files that stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ProblemError
from harness.project.problems import read_problem
from harness.project.solutions import KnownProblems

PROBLEM = """
import torch

batch_size = 4096
shape = (64, 512)


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn((batch_size, *shape))]


def get_init_inputs():
    return [7]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A problem whose name only quotes can hold."""
    path = tmp_path / "19_tanh.py"
    path.write_text(PROBLEM)
    return path


def declare(path: Path, text: str) -> None:
    (path.parent / "cases.toml").write_text(text)


def test_cases_beside_a_file_are_its_cases(path: Path) -> None:
    declare(path, '["19_tanh".full]\n["19_tanh".cpu]\nbatch_size = 3\nshape = [5, 7]\n"get_init_inputs[0]" = 2\n')
    cpu = {"batch_size": 3, "shape": (5, 7), "get_init_inputs[0]": 2}
    assert read_problem(path).cases == {"full": {}, "cpu": cpu}


def test_they_replace_those_in_the_file(path: Path) -> None:
    path.write_text(PROBLEM + 'CASES = {"tiny": {"batch_size": 1}}\n')
    declare(path, '["19_tanh".cpu]\nbatch_size = 3\n')
    assert read_problem(path).cases == {"cpu": {"batch_size": 3}}


def test_tables_of_other_problems_change_nothing(path: Path) -> None:
    declare(path, "[other.cpu]\nbatch_size = 3\n")
    assert read_problem(path).cases == {"full": {}}


def test_a_change_of_the_declaration_is_noticed(path: Path) -> None:
    known = KnownProblems(path.parent)
    assert known.find(str(path)).cases == {"full": {}}
    declare(path, '["19_tanh".cpu]\nbatch_size = 3\n')
    assert known.find(str(path)).cases == {"cpu": {"batch_size": 3}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('["19_tanh"', "cases.toml: not TOML"),
        ('["19_tanh".cpu]\nbatch = 3\n', "sets 'batch', which 19_tanh.py never assigns. Did you mean 'batch_size'?"),
        ('"19_tanh" = 3\n', 'as in ["19_tanh".cpu] and n = 4'),
        ('["19_tanh".cpu]\nbatch_size = 2026-11-25\n', "unsupported type"),
        ('["19_tanh"."a case"]\n', "'a case' is not a valid name"),
        ("\udcff", "cases.toml: not TOML"),
    ],
)
def test_a_bad_declaration_is_refused_with_the_file(path: Path, text: str, words: str) -> None:
    (path.parent / "cases.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ProblemError, match=r"cases\.toml") as caught:
        read_problem(path)
    assert words in str(caught.value)


def test_what_is_no_file_is_refused(path: Path) -> None:
    (path.parent / "cases.toml").mkdir()
    with pytest.raises(ProblemError, match=r"cannot read .*cases\.toml"):
        read_problem(path)

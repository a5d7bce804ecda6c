"""Tests cases beyond the emulator's size: the command says what they need, and prints rows as cases finish."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]

PROBLEM = """
import torch
from torch import nn

n = 8
CASES = {"full": {}, "huge": {"n": 1 << 40}}


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(n, 4)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
"""
RIGHT = SOLUTION.format(body="return torch.tanh(x)")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A solution, and its problem."""
    (tmp_path / "answer.py").write_text(RIGHT)
    (tmp_path / "problem.py").write_text(PROBLEM)
    return tmp_path / "answer.py", tmp_path / "problem.py"


@pytest.mark.parametrize("chosen", [("--set", f"n={1 << 40}"), ("--case", "huge")])
def test_a_case_that_memory_cannot_hold_is_refused_at_once(
    harness: Harness, files: tuple[Path, Path], chosen: tuple[str, str]
) -> None:
    solution, problem = files
    ran = harness("evaluate", solution, "--problem", problem, "--device", "cpu", *chosen)
    assert ran.code == 2
    assert "8,796,093,022,208 elements" in ran.err
    assert "set smaller constants" in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_what_a_large_case_takes_is_said_before_it_runs(harness: Harness, files: tuple[Path, Path]) -> None:
    solution, problem = files
    solution.write_text(SOLUTION.format(body="raise ValueError('not for long')"))
    command = ("evaluate", solution, "--problem", problem, "--device", "cpu", "--no-timing")
    large = harness(*command, "--set", f"n={1 << 20}")
    assert large.err.count("warning: problem: case 'custom' has 8,388,608 elements") == 1
    assert "1.2 GiB of memory" in large.err
    assert "RUNTIME_ERROR" in large.out
    assert "warning" not in harness(*command, "--set", "n=16").err


def test_a_row_of_the_table_is_printed_when_its_solution_is_judged(
    files: tuple[Path, Path], home: Path, harness: Harness
) -> None:
    solution, problem = files
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "evaluate", "-", "--problem", problem, "--device", "cpu", "--case", "full"],
        env={**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    guard = threading.Timer(300, process.kill)  # a table that waits for the end of input would wait for ever
    guard.start()
    assert process.stdin is not None
    assert process.stdout is not None
    print(f'{{"path": "{solution}", "tag": "first"}}', file=process.stdin, flush=True)
    head, row = process.stdout.readline(), process.stdout.readline()
    assert head.split() == ["solution", "status", "cases", "error", "time"]
    assert "PASSED" in row
    rest, _ = process.communicate()
    guard.cancel()
    assert process.returncode == 0
    assert "error: largest error" in rest


def test_a_candidate_that_reads_its_own_sizes_is_told_so(harness: Harness, files: tuple[Path, Path]) -> None:
    solution, problem = files
    solution.write_text("n = 8\n" + SOLUTION.format(body="return torch.tanh(x).view(n, 4)"))
    command = ("evaluate", solution, "--problem", problem, "--device", "cpu")
    words = "note: ModelNew reads n = 8 from its own text, but this case has n = 5"
    assert words in harness(*command, "--set", "n=5").out.replace("\n", " ")
    assert words not in harness(*command, "--set", "n=8").out.replace("\n", " ")

"""Tests that build errors on a GPU machine name the solution's own line, not torch's generated file."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.compilation.cuda import in_solution

SOLUTION = '''import torch

A = """
__global__ void a(float* x) {
    flaot y = 1;
}
"""
B = """
__global__ void b(float* x) {
    flaot y = 1;
}
"""
'''.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written = ["#include <cuda_runtime.h>", *SOLUTION[2:6][1:], *SOLUTION[7:11][1:]]
    (tmp_path / "cuda.cu").write_text("\n".join(written))
    return tmp_path


@pytest.mark.parametrize(
    ("place", "expected"),
    [("cuda.cu(3)", 5), ("cuda.cu:3:5", 5), ("cuda.cu(6)", 10), ("cuda.cu:6", 10)],
)
def test_the_solutions_line_is_named(folder: Path, place: str, expected: int) -> None:
    line = f'{folder}/{place}: error: identifier "flaot" is undefined'
    placed = in_solution(line, folder, "answer.py", SOLUTION)
    assert placed == f'answer.py:{expected}: error: identifier "flaot" is undefined\n    flaot y = 1;'


@pytest.mark.parametrize(
    "line",
    [
        "nvcc fatal: no such option",
        "/usr/include/a.h(3): error: x",
        "{folder}/cuda.cu(99): error: x",
        "{folder}/b.cu(1): error: x",
    ],
)
def test_other_lines_stay_as_they_are(folder: Path, line: str) -> None:
    line = line.format(folder=folder)
    assert in_solution(line, folder, "answer.py", SOLUTION) == line

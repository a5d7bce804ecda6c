"""Tests the plain solutions: they are short, and right on odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PLAIN = sorted((REPOSITORY / "solutions").glob("*/plain.py"))

# The parameters of each problem's model besides x, whose gradients are judged.
GRADIENTS = {
    "conv_transpose2d_gelu_group_norm": {
        "conv_transpose.weight",
        "conv_transpose.bias",
        "group_norm.weight",
        "group_norm.bias",
    },
    "gemm_bias_add_hardtanh_mish_group_norm": {
        "gemm.weight",
        "gemm.bias",
        "bias",
        "groupnorm.weight",
        "groupnorm.bias",
    },
    "gemm_group_norm_min_bias_add": {"gemm.weight", "gemm.bias", "bias", "group_norm.weight", "group_norm.bias"},
    "group_norm": {"gn.weight", "gn.bias"},
    "group_norm_half": {"gn.weight", "gn.bias"},
}


def test_every_problem_has_a_plain_solution() -> None:
    assert {path.parent.name for path in PLAIN} == set(GRADIENTS)
    assert {path.stem for path in (REPOSITORY / "problems").glob("*.py")} == set(GRADIENTS)


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.parent.name)
def test_a_plain_solution_has_at_most_250_lines(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert 100 <= len(lines) <= 250
    assert max(map(len, lines[4:])) <= 120


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.parent.name)
def test_outputs_and_gradients_on_odd_sizes(path: Path, harness: Callable[..., Any]) -> None:
    ran = harness("evaluate", path, "--problem", path.parent.name, "--case", "odd", "--json")
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err
    (row,) = ran.rows
    assert {gradient["name"] for gradient in row["gradients"]} == {"x", *GRADIENTS[path.parent.name]}

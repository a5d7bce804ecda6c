"""Tests CUDA extensions in the style of language models: each passes, and its twin with one changed token fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).parent


class Snippet(NamedTuple):
    """A solution here, its problem's cases, what it differentiates, and the one change that must be caught."""

    name: str
    cases: set[str]
    gradients: set[str]
    old: str
    new: str
    status: str
    words: str


SNIPPETS = [
    Snippet(
        "tiled_matmul",
        {"whole_tiles", "odd", "one_row"},
        {"A", "B"},
        "smem_bytes = 2 * TILE",
        "smem_bytes = 1 * TILE",
        "UNSAFE",
        "shared",
    ),
    Snippet(
        "row_softmax",
        {"whole_warps", "odd", "shorter_than_a_warp"},
        {"x"},
        "int offset = 16;",
        "int offset = 8;",
        "WRONG_OUTPUT",
        "output",
    ),
    Snippet(
        "histogram",
        {"even", "odd", "fewer_than_a_block"},
        set(),
        "atomicAdd(&counts[i], local[i]);",
        "counts[i] = local[i];",
        "WRONG_OUTPUT",
        "output",
    ),
    Snippet(
        "scaled_silu",
        {"whole_vectors", "odd", "tail_only"},
        {"x"},
        "if (tail < n) {",
        "if (tail < 0) {",
        "WRONG_OUTPUT",
        "received nan",
    ),
    Snippet(
        "l2_norm",
        {"many_blocks", "odd", "one_block"},
        {"x"},
        "grad[0] * input[i] / norm[0]",
        "grad[0] * input[i] * norm[0]",
        "WRONG_GRADIENT",
        "gradient of x",
    ),
]
each_snippet = pytest.mark.parametrize("snippet", [pytest.param(snippet, id=snippet.name) for snippet in SNIPPETS])


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
@each_snippet
def test_passes_in_every_case(snippet: Snippet, device: str, harness: Callable[..., Any]) -> None:
    solution, problem = FOLDER / f"{snippet.name}.py", FOLDER / "problems" / f"{snippet.name}.py"
    ran = harness("evaluate", solution, "--problem", problem, "--device", device, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert {row["case"] for row in ran.rows} == snippet.cases
    for row in ran.rows:
        assert row["status"] == "PASSED"
        assert len(row["outputs"]) == 1
        assert {gradient["name"] for gradient in row["gradients"]} == snippet.gradients
        assert row["trials"] == 5


@each_snippet
def test_hostile_twin_is_caught(snippet: Snippet, tmp_path: Path, evaluate_row: Callable[..., dict[str, Any]]) -> None:
    text = (FOLDER / f"{snippet.name}.py").read_text()
    assert text.count(snippet.old) == 1
    twin = tmp_path / f"{snippet.name}.py"
    twin.write_text(text.replace(snippet.old, snippet.new))
    row = evaluate_row(twin, FOLDER / "problems" / f"{snippet.name}.py", "--case", "odd")
    assert row["status"] == snippet.status, row["message"]
    assert snippet.words in row["message"]

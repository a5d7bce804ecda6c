"""Tests every rendering of the linear layer's template: it stands alone, and it passes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import TemplateError
from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value

REPOSITORY = Path(__file__).resolve().parents[2]
TEMPLATE = "gemm_bias_add_hardtanh_mish_group_norm"
# None of these is a committed variant.
SETTINGS: list[dict[str, Value]] = [
    {"threads": 96, "values_per_thread": 8, "rows_per_block": 1, "rows_in_flight": 1},
    {"gemm": "split", "stages": 4, "cluster_m": 2, "promoted_steps": 2},
    {"gemm": "tiled", "threads": 32, "rows_per_block": 3, "block_m": 32, "block_n": 64, "block_k": 8},
    {"gemm": "tiled", "rows_in_flight": 4, "block_m": 64, "block_n": 32, "block_k": 32, "thread_m": 4},
]


@pytest.mark.parametrize("settings", [{}, *SETTINGS], ids=str)
def test_file_stands_alone(settings: dict[str, Value]) -> None:
    text = render_text(REPOSITORY, find_template(REPOSITORY, TEMPLATE), settings)
    tree = ast.parse(text)
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= {"torch", *sys.stdlib_module_names}
    assert {"torch", "torch.utils.cpp_extension"} <= modules
    assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    document = ast.get_docstring(tree)
    assert document is not None
    for piece in ("Replaces:", "Why that should be faster:", "Forward:", "Backward:", "grid", "block"):
        assert piece in document


@pytest.mark.parametrize("settings", [{}, *SETTINGS], ids=str)
def test_kernels_get_the_parameters(settings: dict[str, Value]) -> None:
    declaration = find_template(REPOSITORY, TEMPLATE)
    resolved = declaration.resolve(settings)
    text = render_text(REPOSITORY, declaration, settings)
    assert f"constexpr int kThreads = {resolved['threads']};" in text
    assert f"constexpr int64_t kRowsPerBlock = {resolved['rows_per_block']};" in text
    tiled = resolved["gemm"] == "tiled"
    split = resolved["gemm"] == "split"
    assert ("multiply_tiles<" in text, "torch.mm(" in text, "wgmma" in text) == (tiled, not tiled, split)
    assert (f"constexpr int kStages = {resolved['stages']};" in text) == split
    assert (f"constexpr int kBlockN = {resolved['block_n']};" in text) == tiled
    assert (f"constexpr int kPartialDepth = {resolved['partial_depth']};" in text) == tiled


@pytest.mark.parametrize(
    "settings",
    [
        {"values_per_thread": 8, "rows_in_flight": 4},
        {"rows_per_block": 1},
        {"block_m": 64},
        {"gemm": "split", "cluster_m": 4, "cluster_n": 4},
        {"gemm": "split", "stages": 8},
        {"gemm": "tiled", "block_m": 32, "block_n": 32},
        {"gemm": "tiled", "block_m": 256, "block_n": 256, "block_k": 32},
        {"gemm": "tiled", "block_k": 12},
        {"gemm": "cublas"},
    ],
    ids=str,
)
def test_senseless_settings_are_refused(settings: dict[str, Value]) -> None:
    with pytest.raises(TemplateError, match=f"'{TEMPLATE}'"):
        render_text(REPOSITORY, find_template(REPOSITORY, TEMPLATE), settings)


def test_default_solution_multiplies_on_tensor_cores() -> None:
    assert find_template(REPOSITORY, TEMPLATE).default_variant().name == "split"


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A file of each setting."""
    declaration = find_template(REPOSITORY, TEMPLATE)
    folder = tmp_path_factory.mktemp("settings")
    paths = [folder / f"setting_{index}.py" for index in range(len(SETTINGS))]
    for path, settings in zip(paths, SETTINGS, strict=True):
        path.write_text(render_text(REPOSITORY, declaration, settings))
    return paths


def test_other_settings_pass(rendered: list[Path], harness: Callable[..., Any]) -> None:
    cases = ("odd", "bias_as_row")  # unaligned and aligned
    chosen = [word for case in cases for word in ("--case", case)]
    ran = harness(
        "evaluate", *rendered, "--problem", TEMPLATE, "--device", "cpu", "--seed", "2" * 32, "--json", *chosen
    )
    statuses = {(Path(row["solution"]).stem, row["case"]): row["status"] for row in ran.rows}
    expected = {(path.stem, case): "PASSED" for path in rendered for case in cases}
    assert statuses == expected, ran.out + ran.err


def test_more_rows_than_there_may_be_partial_sums(rendered: list[Path], harness: Callable[..., Any]) -> None:
    """With one row a block, 1030 rows would leave more than the 1024 partial sums that are kept."""
    sizes = {"batch_size": 1030, "in_features": 2, "out_features": 8, "num_groups": 2}
    chosen = [word for name, size in sizes.items() for word in ("--set", f"{name}={size}")]
    path = rendered[next(index for index, setting in enumerate(SETTINGS) if setting.get("rows_per_block") == 1)]
    ran = harness("evaluate", path, "--problem", TEMPLATE, "--device", "cpu", "--seed", "3" * 32, "--json", *chosen)
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err

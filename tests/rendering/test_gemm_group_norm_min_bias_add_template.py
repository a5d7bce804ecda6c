"""Tests every rendering of the minimum's template: it stands alone, and it passes."""

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
TEMPLATE = "gemm_group_norm_min_bias_add"
# None of these is a committed variant; together with those they have every alternative beside every other.
SETTINGS: list[dict[str, Value]] = [
    {"backward": "dense", "threads": 96, "values_per_thread": 4, "rows_per_block": 1, "rows_in_flight": 1},
    {"minimum": "separate", "threads": 64, "rows_per_block": 16, "rows_in_flight": 1},
    {
        "gemm": "tiled",
        "statistics": "epilogue",
        "minimum": "separate",
        "rows_per_block": 4,
        "block_m": 32,
        "block_n": 64,
        "block_k": 8,
        "thread_m": 4,
        "partial_depth": 256,
    },
    {
        "gemm": "tiled",
        "statistics": "epilogue",
        "backward": "dense",
        "values_per_thread": 4,
        "rows_in_flight": 4,
        "block_m": 64,
        "block_n": 32,
        "block_k": 32,
        "thread_m": 4,
        "partial_depth": 128,
    },
    {"gemm": "tiled", "threads": 32, "rows_per_block": 2},
    {"gemm": "split", "backward": "dense", "stages": 3, "cluster_m": 4, "cluster_n": 1, "promoted_steps": 8},
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
    assert f"constexpr int kRowsPerBlock = {resolved['rows_per_block']};" in text
    tiled, epilogue = resolved["gemm"] == "tiled", resolved["statistics"] == "epilogue"
    sparse, fused = resolved["backward"] == "sparse", resolved["minimum"] == "fused"
    products = ("multiply_tiles<" in text, "torch.mm(x.detach(), weight" in text, "wgmma" in text)
    assert products == (tiled, resolved["gemm"] == "aten", resolved["gemm"] == "split")
    assert (f"constexpr int kPartialDepth = {resolved['partial_depth']};" in text) == tiled
    assert ("KeepGroupMoments" in text, "struct ShortGroups" in text) == (epilogue, not epilogue)
    assert ("add_bias_to_lowest<<<" in text, "find_minima<<<" in text) == (fused, not fused)
    assert ("gather_lists<kWidth><<<" in text, "spread_groups<4>" in text) == (sparse, not sparse)


@pytest.mark.parametrize(
    "settings",
    [
        {"statistics": "epilogue"},
        {"values_per_thread": 8, "rows_in_flight": 4},
        {"rows_per_block": 1},
        {"rows_per_block": 3},
        {"gemm": "tiled", "block_m": 256, "block_n": 256, "block_k": 32},
        {"gemm": "tiled", "partial_depth": 100},
        {"gemm": "cublas"},
        {"backward": "none"},
    ],
    ids=str,
)
def test_senseless_settings_are_refused(settings: dict[str, Value]) -> None:
    with pytest.raises(TemplateError, match=f"'{TEMPLATE}'"):
        render_text(REPOSITORY, find_template(REPOSITORY, TEMPLATE), settings)


def test_default_solution_multiplies_on_tensor_cores() -> None:
    assert find_template(REPOSITORY, TEMPLATE).default_variant().name == "split"


def test_every_alternative_is_in_a_committed_solution() -> None:
    declaration = find_template(REPOSITORY, TEMPLATE)
    resolved = [declaration.resolve(variant.settings) for variant in declaration.variants.values()]
    for name in ("gemm", "statistics", "minimum", "backward"):
        assert {setting[name] for setting in resolved} == set(declaration.parameters[name].choices or ()), name


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
    cases = ("deep", "straddling_groups")  # unaligned, a long sum; aligned, groups that begin and end inside tiles
    chosen = [word for case in cases for word in ("--case", case)]
    ran = harness(
        "evaluate", *rendered, "--problem", TEMPLATE, "--device", "cpu", "--seed", "2" * 32, "--json", *chosen
    )
    statuses = {(Path(row["solution"]).stem, row["case"]): row["status"] for row in ran.rows}
    expected = {(path.stem, case): "PASSED" for path in rendered for case in cases}
    assert statuses == expected, ran.out + ran.err


def test_more_rows_than_are_listed_or_summed_at_once(rendered: list[Path], harness: Callable[..., Any]) -> None:
    """Lists are made of 1024 rows at a time; a block sums 1024 rows of the gradient."""
    sizes = {"batch_size": 1100, "in_features": 2, "out_features": 8, "num_groups": 2}
    chosen = [word for name, size in sizes.items() for word in ("--set", f"{name}={size}")]
    ran = harness(
        "evaluate", rendered[1], "--problem", TEMPLATE, "--device", "cpu", "--seed", "3" * 32, "--json", *chosen
    )
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err

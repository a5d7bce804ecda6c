"""Tests every rendering of the group norm template, without building it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from harness.errors import TemplateError
from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS: list[dict[str, Value]] = [
    {},
    {"fusion": "two_kernels"},
    {"fusion": "two_kernels", "threads": 512, "vector_width": 1, "unroll": 8},
    {"threads": 32, "unroll": 1},
    {"fusion": "two_kernels", "tiles_per_block": 2},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_file_stands_alone(settings: dict[str, Value]) -> None:
    text = render_text(REPOSITORY, find_template(REPOSITORY, "group_norm"), settings)
    tree = ast.parse(text)
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= {"torch", *sys.stdlib_module_names}
    assert {"torch", "torch.utils.cpp_extension"} <= modules
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert "ModelNew" in classes
    document = ast.get_docstring(tree)
    assert document is not None
    for piece in ("Replaces:", "Why that should be faster:", "Forward:", "Backward:", "grid", "block"):
        assert piece in document


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_kernels_get_the_parameters(settings: dict[str, Value]) -> None:
    declaration = find_template(REPOSITORY, "group_norm")
    resolved = declaration.resolve(settings)
    text = render_text(REPOSITORY, declaration, settings)
    assert f"constexpr int kThreads = {resolved['threads']};" in text
    width = "1" if resolved["vector_width"] == 1 else "16 / sizeof(Element)"
    assert f"constexpr int kVectorWidth = {width};" in text
    assert ("normalise_groups<" in text) == (resolved["fusion"] == "fused")
    assert ("group_moments<" in text) == (resolved["fusion"] != "fused")
    assert ("stream_forward" in text) == ("normalise_held_groups" in text) == (resolved["fusion"] == "streamed")


@pytest.mark.parametrize(
    "settings",
    [
        {"vector_width": 4, "unroll": 8, "threads": 1024},
        {"fusion": "fused", "tiles_per_block": 8},
        {"threads": 100},
        {"fusion": "one_kernel"},
    ],
    ids=str,
)
def test_senseless_settings_are_refused(settings: dict[str, Value]) -> None:
    with pytest.raises(TemplateError, match="'group_norm'"):
        render_text(REPOSITORY, find_template(REPOSITORY, "group_norm"), settings)


def test_default_solution_is_a_variant_of_the_template() -> None:
    assert find_template(REPOSITORY, "group_norm").default_variant().name == "streamed"

"""Tests every rendering of the transposed convolution's template: it stands alone, and it passes."""

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
TEMPLATE = "conv_transpose2d_gelu_group_norm"
# None of these is a committed variant.
SETTINGS: list[dict[str, Value]] = [
    {"threads": 96, "vector_width": 1, "unroll": 4, "tiles_per_block": 1},
    # GELU in a pass behind our own convolution, whose tiles are small.
    {
        "convolution": "direct",
        "threads": 64,
        "unroll": 1,
        "block_channels": 32,
        "block_pixels": 128,
        "thread_channels": 4,
        "thread_pixels": 4,
        "weight_channels": 32,
        "weight_pixels": 8,
        "weight_blocks": 7,
    },
    # Two warps to a channel, as many channels a thread as there may be, and one block for all of a weight's sums.
    {
        "convolution": "direct",
        "gelu": "epilogue",
        "block_channels": 128,
        "thread_channels": 16,
        "thread_pixels": 4,
        "depth": 4,
        "weight_pixels": 16,
        "weight_blocks": 1,
    },
    # On tensor cores, however small; what the stride keeps from them is torch's.
    {"convolution": "tensor", "tensor_from": 0},
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
    direct = resolved["convolution"] == "direct"
    assert ("convolve<" in text, "torch.conv_transpose2d(" in text) == (direct, not direct)
    assert (f"constexpr int kBlockPixels = {resolved['block_pixels']};" in text) == direct
    assert ("correlate<" in text) == (resolved["convolution"] == "tensor")
    assert ("normalise_groups<" in text) == (resolved["statistics"] == "one_kernel")
    reads_z_for_statistics = resolved["statistics"] == "two_kernels" and resolved["gelu"] == "pass"
    assert ("group_moments<" in text) == (reads_z_for_statistics and direct)
    assert ("row_moments<" in text) == (reads_z_for_statistics and not direct)
    assert ("kGathersMoments = true" in text) == (resolved["gelu"] == "epilogue")


@pytest.mark.parametrize(
    "settings",
    [
        {"gelu": "epilogue"},
        {"convolution": "direct", "gelu": "epilogue", "statistics": "one_kernel"},
        {"block_pixels": 512},
        {"statistics": "one_kernel", "tiles_per_block": 8},
        {"threads": 100},
        {"vector_width": 4, "unroll": 8, "threads": 1024},
        {"convolution": "direct", "thread_channels": 16},
        {"convolution": "direct", "block_pixels": 128},
        {"convolution": "direct", "block_channels": 32},
        {"convolution": "direct", "depth": 4, "block_pixels": 512, "thread_pixels": 4, "thread_channels": 8},
        {"convolution": "direct", "depth": 16},
        {"convolution": "direct", "weight_channels": 32},
        {"convolution": "cudnn"},
        {"convolution": "tensor", "statistics": "one_kernel"},
        {"convolution": "tensor", "gelu": "epilogue"},
        {"tensor_from": 0},
    ],
    ids=str,
)
def test_senseless_settings_are_refused(settings: dict[str, Value]) -> None:
    with pytest.raises(TemplateError, match=f"'{TEMPLATE}'"):
        render_text(REPOSITORY, find_template(REPOSITORY, TEMPLATE), settings)


def test_default_solution_convolves_on_tensor_cores() -> None:
    assert find_template(REPOSITORY, TEMPLATE).default_variant().name == "tensor"


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
    cases = ("odd", "stride_2")
    chosen = [word for case in cases for word in ("--case", case)]
    ran = harness(
        "evaluate", *rendered, "--problem", TEMPLATE, "--device", "cpu", "--seed", "2" * 32, "--json", *chosen
    )
    statuses = {(Path(row["solution"]).stem, row["case"]): row["status"] for row in ran.rows}
    expected = {(path.stem, case): "PASSED" for path in rendered for case in cases}
    assert statuses == expected, ran.out + ran.err


def test_more_pixels_than_a_block_sums_in_registers(rendered: list[Path], harness: Callable[..., Any]) -> None:
    """One block for all of 5040 pixels: its sums go to memory after every 2048, and are added to what is there."""
    sizes = {"batch_size": 3, "in_channels": 2, "out_channels": 4, "height": 40, "width": 40, "num_groups": 2}
    chosen = [word for name, size in sizes.items() for word in ("--set", f"{name}={size}")]
    path = rendered[next(index for index, setting in enumerate(SETTINGS) if setting.get("weight_blocks") == 1)]
    ran = harness("evaluate", path, "--problem", TEMPLATE, "--device", "cpu", "--seed", "3" * 32, "--json", *chosen)
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err

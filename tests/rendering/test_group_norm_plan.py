"""Which kernels the default group norm takes for a shape: the choice itself, compiled for the host with a device's
attributes made up; and, on a GPU, results at the edges between the choices."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.compiler import find_compiler

REPOSITORY = Path(__file__).resolve().parents[2]
SOLUTION = REPOSITORY / "solutions" / "group_norm" / "streamed.py"
HOPPER = {"blocks": 132, "major": 9, "cooperative": 1, "shared": 232448, "element": "float", "flag": "-DSM_90A"}
HALVES = {"element": "Two"}
SEVERAL_KINDS = {"flag": "-USM_90A"}  # devices, so that the code is not for one of them alone
PROGRAM = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
enum cudaDeviceAttr {{ cudaDevAttrComputeCapabilityMajor, cudaDevAttrCooperativeLaunch,
                       cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMultiProcessorCount }};
constexpr int cudaSuccess = 0;
int values[] = {{ {major}, {cooperative}, {shared}, {blocks} }};
inline int cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {{ *value = values[attribute]; return 0; }}
inline int cudaGetDevice(int*) {{ return 0; }}
inline int64_t ceil_div(int64_t a, int64_t b) {{ return (a + b - 1) / b; }}
struct Shape {{ int64_t samples, channels, groups, spatial; }};
struct Two {{ char bytes[2]; }};
using Element = {element};
{plan}
int main(int, char** words) {{
  const Shape shape = {{ atoll(words[1]), atoll(words[2]), atoll(words[3]), atoll(words[4]) }};
  const bool is_aligned = atoi(words[5]);
  const Choice forward = choice_of(shape, kForwardSmall, is_aligned, kForwardWaiting, kForwardShared, 0);
  const Choice backward = choice_of(shape, kBackwardSmall, is_aligned, kBackwardWaiting, kBackwardShared, 0);
  printf("%d %d", static_cast<int>(forward.plan), static_cast<int>(backward.plan));
}}
"""
SMALL, PARTS, STREAMED = "small", "parts", "streamed"
NAMES = (SMALL, PARTS, STREAMED)


def plan_of(text: str) -> str:
    """The part of the solution that chooses."""
    found = re.search(r"(enum class Plan \{.*?int64_t streaming_sums\(.*?\n\}\n)", text, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[str, str]]:
    """The plans, forward and backward, of a shape on a device."""
    folder = tmp_path_factory.mktemp("plan")

    def plans(*shape: int, is_aligned: bool = True, **device: int | str) -> tuple[str, str]:
        values = {**HOPPER, **device}
        program = folder / "_".join(map(str, values.values()))
        if not program.exists():
            source = program.with_suffix(".cpp")
            source.write_text(PROGRAM.format(plan=plan_of(SOLUTION.read_text()), **values))
            subprocess.run([*find_compiler().command, "-std=c++17", values["flag"], source, "-o", program], check=True)
        words = [*map(str, shape), str(int(is_aligned))]
        forward, backward = subprocess.run([program, *words], capture_output=True, check=True, text=True).stdout.split()
        return NAMES[int(forward)], NAMES[int(backward)]

    return plans


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((112, 64, 8, 512 * 512), {}, (STREAMED, STREAMED)),
        ((112, 64, 8, 512 * 512), {"is_aligned": False}, (PARTS, PARTS)),
        ((112, 64, 8, 512 * 512), {"major": 8}, (PARTS, PARTS)),
        ((112, 64, 8, 512 * 512), {"cooperative": 0}, (PARTS, PARTS)),
        ((112, 64, 8, 512 * 512), {"shared": 101376}, (PARTS, PARTS)),
        ((112, 64, 8, 512 * 512 + 4), {}, (PARTS, PARTS)),
        ((1, 32, 8, 8), {}, (SMALL, SMALL)),
        ((32, 128, 32, 4096), {}, (SMALL, STREAMED)),
        ((4, 64, 8, 32 * 32), {}, (SMALL, PARTS)),
        ((1, 8, 1, 4096), {}, (PARTS, PARTS)),  # less than is worth a stream
        # As many chunks of a group as a block may hold, 132 blocks: 16 in the forward, 12 in the backward.
        ((4, 132, 1, 12 * 4096), {}, (STREAMED, STREAMED)),
        ((4, 133, 1, 12 * 4096), {}, (STREAMED, PARTS)),
        ((4, 132, 1, 10 * 4096), SEVERAL_KINDS, (STREAMED, STREAMED)),
        ((4, 133, 1, 10 * 4096), SEVERAL_KINDS, (STREAMED, PARTS)),
        ((4, 132, 1, 16 * 4096), {}, (STREAMED, PARTS)),
        ((4, 133, 1, 16 * 4096), {}, (PARTS, PARTS)),
        ((4, 64, 1, 512 * 512), {}, (PARTS, PARTS)),
        # A slice of a GPU holds less.
        ((112, 64, 8, 512 * 512), {"blocks": 40}, (STREAMED, PARTS)),
        ((112, 64, 8, 512 * 512), {"blocks": 28}, (PARTS, PARTS)),
        # Half precision: chunks have as many bytes, twice as many elements.
        ((112, 64, 8, 512 * 512), HALVES, (STREAMED, STREAMED)),
        ((1, 64, 1, 65536), HALVES, (STREAMED, STREAMED)),
        ((1, 63, 1, 65536), HALVES, (PARTS, PARTS)),
        ((32, 128, 32, 4096), HALVES, (SMALL, PARTS)),
        ((4, 132, 1, 16 * 8192), HALVES, (STREAMED, PARTS)),
        ((4, 133, 1, 16 * 8192), HALVES, (PARTS, PARTS)),
    ],
    ids=str,
)
def test_the_plan_of_a_shape(
    chosen: Callable[..., tuple[str, str]], shape: tuple[int, ...], options: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert chosen(*shape, **options) == expected


EDGES = """
import torch
import torch.nn as nn

shape = (2, 8, 64, 64)
groups = 2
offset = 100.0
spread = 2.0
dtype = "float32"
CASES = {
    "small_forward_streamed_backward": {"shape": (8, 128, 64, 64), "groups": 32},
    "fewer_chunks_than_blocks": {"shape": (2, 300, 64, 64), "groups": 3},
    "as_many_chunks_as_blocks": {"shape": (4, 132, 64, 64), "groups": 1},
    "one_chunk_more": {"shape": (4, 133, 64, 64), "groups": 1},
    "longest_backward": {"shape": (3, 132, 64, 768), "groups": 1},
    "too_long_for_the_backward": {"shape": (3, 133, 64, 768), "groups": 1},
    "longest_forward": {"shape": (2, 132, 64, 1024), "groups": 1},
    "too_long": {"shape": (2, 64, 512, 512), "groups": 1},
    "one_large_group": {"shape": (1, 64, 256, 256), "groups": 1},
    "far_mean": {"shape": (4, 132, 64, 64), "groups": 1, "offset": 1e4, "spread": 1.0},
    "far_mean_in_parts": {"shape": (4, 132, 63, 65), "groups": 1, "offset": 1e4, "spread": 1.0},
    "constant": {"shape": (4, 132, 64, 64), "groups": 1, "offset": 3.7, "spread": 0.0},
    "denormal": {"shape": (4, 132, 64, 64), "groups": 1, "offset": 0.0, "spread": 1e-39},
    "float16": {"shape": (4, 96, 128, 128), "groups": 3, "dtype": "float16"},
    "bfloat16": {"shape": (4, 96, 128, 128), "groups": 3, "dtype": "bfloat16"},
    "float16_longest_forward": {"shape": (2, 132, 128, 1024), "groups": 1, "dtype": "float16"},
    "float16_small": {"shape": (8, 128, 64, 64), "groups": 32, "dtype": "float16"},
}


class Model(nn.Module):
    def __init__(self, channels: int, groups: int):
        super().__init__()
        self.gn = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.gn(x.to(self.gn.weight.dtype)).to(x.dtype)


def get_inputs():
    return [(torch.randn(shape) * spread + offset).to(getattr(torch, dtype))]


def get_init_inputs():
    return [shape[1], groups]
"""


@pytest.mark.gpu
def test_results_at_the_edges_of_plans(harness: Callable[..., Any], tmp_path: Path) -> None:
    problem = tmp_path / "edges.py"
    problem.write_text(EDGES)
    ran = harness("evaluate", SOLUTION, "--problem", problem, "--device", "cuda:0", "--no-timing", "--json")
    failed = {row["case"]: row["message"] for row in ran.rows if row["status"] != "PASSED"}
    assert (failed, len(ran.rows)) == ({}, 17)
    used = {row["case"]: {use["name"] for part in row["kernels"].values() for use in part} for row in ran.rows}
    streamed = {case: sorted(name for name in names if "stream_" in name) for case, names in used.items()}
    assert len(streamed["longest_backward"]) == 2
    assert len(streamed["too_long_for_the_backward"]) == 1
    assert streamed["too_long"] == []
    assert len(streamed["float16"]) == len(streamed["bfloat16"]) == len(streamed["far_mean"]) == 2

"""Tests the kernels that stream, with their copies and barriers, on the emulator and its checking mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOLUTION = Path(__file__).resolve().parents[2] / "solutions" / "group_norm" / "streamed.py"
SIZES = ("batch_size=2", "features=4", "num_groups=2", "dim1=128", "dim2=128")


@pytest.fixture
def text() -> str:
    """The solution with groups of any size large enough to stream, on two blocks, which use their places again."""
    found = SOLUTION.read_text()
    for name, value in (("kStreamedBytes", "1024"), ("kForwardSmall", "512"), ("kBackwardSmall", "512")):
        found, count = re.subn(rf"(constexpr int64_t {name}) = [^;]*;", rf"\1 = {value};", found)
        assert count == 1
    blocks = "attribute_of(cudaDevAttrMultiProcessorCount, device)"
    assert found.count(blocks) == 1
    return found.replace(blocks, "2")


@pytest.fixture
def row_of(harness: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def judged(text: str, *options: str) -> dict[str, Any]:
        (tmp_path / "streamed.py").write_text(text)
        sizes = [word for size in SIZES for word in ("--set", size)]
        ran = harness("evaluate", tmp_path / "streamed.py", "--problem", "group_norm", *sizes, "--json", *options)
        (row,) = ran.rows
        return dict(row)

    return judged


def test_they_pass_and_no_access_is_at_fault(text: str, row_of: Callable[..., dict[str, Any]]) -> None:
    row = row_of(text, "--check")
    assert (row["status"], row["message"]) == ("PASSED", "")
    # Only launches of what streams go through a function's parameter of this name.
    assert [one["name"] for one in row["kernels"]["forward"]] == ["kernel"]
    assert row["kernels"]["backward"][0]["name"] == "kernel"


def test_a_wait_that_is_missing_is_named(text: str, row_of: Callable[..., dict[str, Any]]) -> None:
    wait = "barrier_wait(shared.barriers.full + stage, i / kStages & 1);\n"
    assert text.count(wait) == 4
    row = row_of(text.replace(wait, ""), "--check")
    assert row["status"] == "UNSAFE"
    assert "the asynchronous copy that thread" in row["message"]


def test_a_fence_that_is_missing_is_named(text: str, row_of: Callable[..., dict[str, Any]]) -> None:
    fence = '  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");\n'
    assert text.count(fence) == 1
    row = row_of(text.replace(fence, ""), "--check")
    assert row["status"] == "UNSAFE"
    assert "no fence.proxy.async lies between" in row["message"]

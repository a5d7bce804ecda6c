"""Tests libcu++'s barriers, pipelines and functions for PTX, CUDA's C functions for copies, and copies of groups."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .native import ORDERS, Emulator, floats, line_of

SOURCE = Path(__file__).with_name("library_copies.cu")
TILE = 64
KERNELS = (
    "counted",
    "bytes",
    "dropped",
    "unified1",
    "unified3",
    "with_roles",
    "with_counts",
    "of_a_thread",
    "primitives",
    "bulk",
    "of_a_group",
)


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_tile_is_there_behind_the_wait(emulator: Emulator, kernel: str, order: str) -> None:
    emulator.runtime.cuemu_set_order(ORDERS[order], 7)
    tiles = 7
    x, y = floats(tiles * TILE, range(tiles * TILE)), floats(tiles * TILE)
    emulator.kernels.run_copies(KERNELS.index(kernel), x, y, tiles)
    assert list(y) == [2 * x[tile * TILE + TILE - 1 - i] for tile in range(tiles) for i in range(TILE)]
    assert emulator.reports() == []


def test_functions_of_ptx(emulator: Emulator) -> None:
    out = (ctypes.c_uint * 128)()
    emulator.kernels.run_functions_of_ptx(out)
    expected = [i + 1000 * (1 - i // 64) + 10000 * (i % 32) + 1000000 * (i % 32) for i in range(128)]
    assert list(out) == expected


def test_a_pointer_tells_its_space(emulator: Emulator) -> None:
    out = (ctypes.c_uint * 1)()
    emulator.kernels.run_spaces(floats(1), out)
    assert out[0] == 1011


def test_a_copy_keeps_the_alignment_that_it_promises(emulator: Emulator) -> None:
    emulator.kernels.run_misplaced(floats(4))
    report = emulator.only_report("misaligned", "misplaced")
    assert report["line"] == line_of(SOURCE, "memcpy_async", "void misplaced")


@pytest.mark.parametrize(
    ("declaration", "construct"),
    [
        ("cuda::barrier<cuda::thread_scope_device>", "a cuda::barrier of another scope"),
        ("cuda::barrier<>", "a cuda::barrier of another scope"),
        ("cuda::std::atomic<int>", "<cuda/std/atomic>"),
        ("cuda::atomic<int4>", "a cuda::atomic of a type"),
    ],
)
def test_what_is_missing_is_refused_by_name(
    run_solution: Callable[..., dict[str, Any]], declaration: str, construct: str
) -> None:
    header = declaration.partition("<")[0].replace("::", "/")
    text = f"""
import torch.utils.cpp_extension
torch.utils.cpp_extension.load_inline(name="scopes", cpp_sources="void f();", cuda_sources=r'''
#include <{header}>
__global__ void k() {{
  __shared__ {declaration} one;
  static_cast<void>(&one == nullptr ? 0 : sizeof one);
}}
void f() {{ k<<<1, 1>>>(); }}
''', functions=["f"])
"""
    refused = run_solution(text)["unsupported"]
    assert construct in refused[0]

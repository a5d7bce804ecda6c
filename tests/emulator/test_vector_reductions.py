"""Tests reductions of several values at once, and copies that count as arrivals at an mbarrier."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import Emulator, floats, ints

SOURCE = Path(__file__).with_name("vector_reductions.cu")


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def aligned(count: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    """Zeros, and the address of so many bytes among them, a multiple of 16."""
    memory = ctypes.create_string_buffer(count + 16)
    return memory, (ctypes.addressof(memory) + 15) // 16 * 16


def test_values_beside_each_other_are_added_at_once(ordered: Emulator) -> None:
    memory, place = aligned(128)
    values, halves, brains = (ctypes.c_void_p(place + offset) for offset in (0, 32, 64))
    before = floats(3)
    ordered.kernels.run_add(values, halves, brains, before)
    total = 8.0 * sum(range(8))
    sums = [total + 1, 2 * total + 1, 3 * total, 4 * total, total, -total]
    assert list((ctypes.c_float * 6).from_address(place)) == sums
    found = list((ctypes.c_uint32 * 4).from_address(place + 32))
    # 64 and 65 as halves, 64 beside 128; 64 as bfloat16.
    assert [hex(one) for one in found] == ["0x54105410", "0x5400", "0x54005400", "0x58005400"]
    assert hex(ctypes.c_uint32.from_address(place + 64).value) == "0x42804280"
    assert list(before) == [total, 2 * total, float(0x54005400)]
    assert ordered.reports() == []
    del memory


def test_a_copy_is_an_arrival(ordered: Emulator) -> None:
    source, target = ints(64, range(64)), ints(64)
    ordered.kernels.run_reversed(source, target)
    assert list(target) == list(reversed(range(64)))
    assert ordered.reports() == []

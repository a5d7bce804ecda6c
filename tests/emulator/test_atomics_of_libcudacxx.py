"""Tests libcu++'s atomics: their operations, what their memory orders publish, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import Emulator, floats, ints, line_of

SOURCE = Path(__file__).with_name("atomics_of_libcudacxx.cu")


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def test_operations(ordered: Emulator) -> None:
    out, numbers = (ctypes.c_longlong * 16)(), floats(4)
    ordered.kernels.run_operations(out, numbers)
    total = 5 + sum(range(64)) + 64 - 128
    assert list(out)[:8] == [total, 437, 63, 255, (250 + 64) % 256, 64, 255, 9]
    assert list(out)[8:] == [0, 9, 1, 7, 4, 5, -128, 1]
    assert numbers[0] == 32
    assert ctypes.cast(ctypes.byref(numbers, 8), ctypes.POINTER(ctypes.c_double))[0] == -16
    assert ordered.reports() == []
    assert ordered.kernels.run_on_the_host() == 7


def test_a_memory_order_publishes_what_was_written_before(ordered: Emulator) -> None:
    blocks = 9
    partial, out = ints(blocks), ints(1)
    ordered.kernels.run_last_block(ints(blocks, range(blocks)), partial, ints(1), out, blocks, False)
    assert (out[0], ordered.reports()) == (360, [])
    for fenced in (False, True):
        values, flags = ints(blocks), ints(blocks)
        ordered.kernels.run_chained(values, flags, blocks, fenced)
        assert (list(values), ordered.reports()) == (list(range(blocks)), [])


def test_what_an_atomic_does_not_publish_is_a_race(emulator: Emulator) -> None:
    emulator.kernels.run_last_block(ints(4, range(4)), ints(4), ints(1), ints(1), 4, True)
    if not emulator.checked:
        assert emulator.reports() == []  # only the checking mode sees races
        return
    report = emulator.only_report("race", "last_block")
    assert line_of(SOURCE, "partial[i]", "void last_block") in [access["line"] for access in report["accesses"]]


def test_the_scope_of_a_block_publishes_nothing_to_others(emulator: Emulator) -> None:
    emulator.kernels.run_narrow_scope(ints(1), ints(2))
    if not emulator.checked:
        assert emulator.reports() == []
        return
    assert {report["kind"] for report in emulator.reports()} == {"race"}

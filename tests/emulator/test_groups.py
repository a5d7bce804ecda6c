"""Tests cooperative groups: tiles, coalesced groups, partitions, reductions, scans, copies and launch attributes."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import SUCCESS, Emulator, floats, ints, line_of

SOURCE = Path(__file__).with_name("groups.cu")


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def signed(value: int) -> int:
    return ctypes.c_int(value & 0xFFFFFFFF).value


def expected_of_tiles(thread: int, size: int, threads: int) -> list[int]:
    """The sixteen results of tile_operations for one thread."""
    rank, first = thread % size, thread // size * size
    tile = range(first, first + size)
    mixed = [other * 7 % 13 for other in tile]
    bits = [1 << other % size % 8 for other in tile]
    largest = min(tile, key=lambda other: (-(other * 5 % 11), other))
    half = size // 2
    of_half = range(thread // half * half, thread // half * half + half)
    return [
        rank + 100 * (thread // size) + 10000 * (threads // size) + 1000000 * size,
        first + 1 % size,
        thread - 1 if rank >= 1 else thread,
        thread + 2 if rank + 2 < size else thread,
        first + (rank ^ (size // 2)),
        int(first == 0) + 10 * int(first + size < threads),
        signed(sum(1 << other for other in range(size) if other % 3 == 0)),
        signed(sum(1 << other for other in range(size) if other // 3 == rank // 3)),
        1,
        sum(tile),
        min(mixed) + 100 * max(mixed),
        sum(set(bits)) + 1000 * (0xFF ^ sum(set(bits))),
        sum(range(first, thread + 1)),
        sum(range(first, thread)) + 100000 * max([other % 5 for other in range(rank)], default=0),
        largest + 1000 * (largest * 5 % 11),
        rank // half + 10 * (size // half) + 100 * sum(of_half),
    ]


@pytest.mark.parametrize(("size", "threads"), [(32, 64), (16, 96), (4, 32), (2, 32)])
def test_operations_of_tiles(ordered: Emulator, size: int, threads: int) -> None:
    out = ints(16 * threads)
    ordered.kernels.run_tiles(out, size, threads)
    for thread in range(threads):
        assert [out[threads * i + thread] for i in range(16)] == expected_of_tiles(thread, size, threads), thread
    assert ordered.reports() == []


def test_a_function_of_any_group(ordered: Emulator) -> None:
    out = ints(17 + 128)
    ordered.kernels.run_any_group(out)
    assert out[:17] == [sum(range(128))] + [sum(range(first, first + 8)) for first in range(0, 128, 8)]
    assert out[17:] == [1000 * i + 127 - i for i in range(128)]
    assert ordered.reports() == []


def test_coalesced_threads_are_the_lanes_of_their_branch(ordered: Emulator) -> None:
    out = ints(6 * 64)
    ordered.kernels.run_coalesced(out)
    for thread in range(64):
        active = [other for other in range(thread // 32 * 32, thread // 32 * 32 + 32) if other % 3 == 1]
        if thread not in active:
            assert out[6 * thread : 6 * thread + 6] == [0] * 6
            continue
        rank, size = active.index(thread), len(active)
        up, down = active[max(rank - 1, 0)], active[min(rank + 1, size - 1)]
        odd = sum(1 << other for other in range(size) if other % 2)
        assert out[6 * thread : 6 * thread + 6] == [
            size * 100 + rank,
            active[2],
            up * 100 + down,
            sum(active),
            odd,
            rank % 4 + 1 + 10 * (rank // 4) + 100 * ((size + 3) // 4),
        ]
    assert ordered.reports() == []


def test_partitions_by_label(ordered: Emulator) -> None:
    labels = ints(1000, (i * i % 7 for i in range(1000)))
    counts, evens = ints(7), ints(2)
    ordered.kernels.run_count_labels(labels, counts, evens, 1000)
    wanted = Counter(labels)
    assert list(counts) == [wanted[label] for label in range(7)]
    assert list(evens) == [sum(label % 2 == parity for label in labels) for parity in range(2)]
    assert ordered.reports() == []


def test_indices_and_ranks(ordered: Emulator) -> None:
    out = (ctypes.c_ulonglong * (12 * 60))()
    ordered.kernels.run_indices(out)
    assert list(out) == [i // 60 * 1000 + i % 60 for i in range(12 * 60)]
    assert ordered.reports() == []


@pytest.mark.parametrize("count", [96, 1, 333])
def test_a_copy_by_all_threads_is_there_after_the_wait(ordered: Emulator, count: int) -> None:
    x, y = floats(count, range(count)), floats(count)
    ordered.kernels.run_copies(x, y, count, 1)
    assert list(y) == list(range(count))[::-1]
    assert ordered.reports() == []


def test_a_copy_that_nobody_waits_for_is_a_race(emulator: Emulator) -> None:
    x, y = floats(96, range(96)), floats(96)
    emulator.kernels.run_copies(x, y, 96, 0)
    if not emulator.checked:
        assert list(y) != list(range(96))[::-1]
        return
    report = next(report for report in emulator.reports() if report["kind"] == "race")
    lines = {access["line"] for access in report["accesses"]}
    assert lines == {line_of(SOURCE, text, "void copies") for text in ("memcpy_async", "for (int i")}


def test_lanes_of_a_tile_in_different_operations_are_reported(ordered: Emulator) -> None:
    ordered.kernels.run_some_leave(ints(64))
    report = ordered.only_report("mask", "some_leave")
    lines = {access["line"] for access in report["accesses"]}
    assert lines == {line_of(SOURCE, text, "void some_leave") for text in ("tile.shfl", "tile.any")}


@pytest.mark.parametrize("in_c", [0, 1])
def test_the_cooperative_attribute_of_a_launch(ordered: Emulator, in_c: int) -> None:
    out = ints(1)
    assert ordered.kernels.run_with_attributes(out, 7, 0, in_c) == SUCCESS
    assert out[0] == 21
    assert ordered.kernels.run_with_attributes(out, 7, 1, in_c) == SUCCESS
    assert out[0] == 21 + 2100
    assert ordered.kernels.run_with_attributes(out, 132 * 32 + 1, 1, in_c) == 720
    assert ordered.only_report("launch", "with_attributes")["message"].startswith("too many blocks")

"""Tests CUB's algorithms of blocks and warps."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from struct import unpack

import pytest

from .native import Emulator, floats, ints

SOURCE = Path(__file__).with_name("cub_algorithms.cu")
THREADS, ITEMS = 64, 4
ALL = THREADS * ITEMS

#: By threads of a block: digests of warp reductions, raking, commutative raking, scans by raking and by warps.
#: An H100 computed them with CUDA 13.0 (CUB 3.0.1) and -fmad=false.
OF_A_GPU = {
    256: (0x79CB00BF1EB2DFEB, 0x6DBD39BF22D3A63C, 0xAC096283EC1077C8, 0x1B0AD2F5F5EC9A9F, 0x6C968CE14807DD9E),
    100: (0x7AF91B0DB99F59CE, 0x77A3690DB3F4BC58, 0xB76F2F284C4C0DC6, 0x8E94A9D346757CDA, 0x8E94A9D346757CDA),
    16: (0x70D1B036A6F5AA5, 0x70D1B036A6F5AA5, 0x29E8BBA1E7C7C5C5, 0x7DD530097F798211, 0x7DD530097F798211),
    512: (0x60A3CCA707C078A5, 0x658599A7100C27FC, 0xDA69214338CDF82A, 0x6E1500F94E7763F5, 0xDA42DF1B9714B002),
}


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def drawn(count: int) -> list[float]:
    found, state = [], 1
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        found.append((state >> 8) / 16777216 - 0.25)
    return found


def digest(values: list[float]) -> int:
    found = 0
    for value in values:
        found = (found ^ unpack("I", ctypes.c_float(value))[0]) * 1099511628211 % 2**64
    return found


@pytest.mark.parametrize("algorithm", range(5))
@pytest.mark.parametrize("threads", OF_A_GPU)
def test_sums_have_the_bits_of_a_gpu(ordered: Emulator, threads: int, algorithm: int) -> None:
    x, y = floats(5 * threads, drawn(5 * threads)), floats(11 * threads)
    ordered.kernels.run_sums(threads, algorithm, x, y)
    count = 11 * threads if algorithm > 2 else 3 if algorithm == 2 else 4
    assert digest(list(y)[:count]) == OF_A_GPU[threads][algorithm]
    assert ordered.reports() == []


@pytest.mark.parametrize("count", [ALL, ALL - 37])
@pytest.mark.parametrize("which", range(5))
def test_items_are_loaded_and_stored(ordered: Emulator, which: int, count: int) -> None:
    x, y = ints(ALL, range(ALL)), ints(ALL)
    ordered.kernels.run_moved(which, x, y, count)
    assert list(y) == [1001 * i if i < count else 0 for i in range(ALL)]
    assert ordered.reports() == []


def test_a_vector_load_needs_an_aligned_place(native: Callable[..., Emulator]) -> None:
    checked = native(SOURCE, True)
    checked.begin()
    x, y = ints(ALL + 4), ints(ALL + 4)
    unaligned = ctypes.byref(x, 4 if ctypes.addressof(x) % 16 == 0 else 0)
    checked.kernels.run_moved(2, unaligned, y, ALL)
    assert "misaligned" in {report["kind"] for report in checked.reports()}
    checked.reset()


def test_items_are_exchanged(ordered: Emulator) -> None:
    y = ints(9 * ALL)
    ordered.kernels.run_exchanged(y)
    rows = [list(y)[row * ALL : (row + 1) * ALL] for row in range(9)]
    places = [divmod(place, ITEMS) for place in range(ALL)]
    striped = [item * THREADS + thread for thread, item in places]
    warp_striped = [thread // 32 * 32 * ITEMS + item * 32 + thread % 32 for thread, item in places]
    small_striped = [thread // 16 * 16 * ITEMS + item * 16 + thread % 16 for thread, item in places]
    scattered = {i * 3 % ALL: i for i in range(ALL)}
    assert rows[0] == striped
    assert rows[1] == [striped.index(place) for place in range(ALL)]
    assert rows[2] == warp_striped
    assert rows[3] == [warp_striped.index(place) for place in range(ALL)]
    assert rows[4] == [scattered[place] for place in range(ALL)]
    assert rows[5] == [scattered[place] for place in striped]
    assert [row for row, place in zip(rows[6], striped, strict=True) if place % 4 != 2] == [
        place for place in striped if place % 4 != 2
    ]
    assert rows[7] == small_striped
    assert rows[8] == list(range(ALL))


@pytest.mark.parametrize("striped", [0, 1])
@pytest.mark.parametrize("descending", [0, 1])
@pytest.mark.parametrize("bits", [(0, 32), (4, 8)])
def test_keys_are_sorted_by_their_bits(
    emulator: Emulator, descending: int, striped: int, bits: tuple[int, int]
) -> None:
    values = [(i * 7919 % 211) - 100 for i in range(ALL)]
    keys, order = ints(ALL), ints(ALL)
    emulator.kernels.run_sorted_ints(ints(ALL, values), keys, order, descending, striped, *bits)
    first, last = bits

    def digit(i: int) -> int:
        return ((values[i] + 2**31) >> first) % 2 ** (last - first)

    expected = sorted(range(ALL), key=lambda i: -digit(i) if descending else digit(i))
    assert list(order) == expected
    assert list(keys) == [values[i] for i in expected]
    assert emulator.reports() == []


@pytest.mark.parametrize("descending", [0, 1])
def test_floats_are_sorted_with_equal_zeros(emulator: Emulator, descending: int) -> None:
    values = [(-1.0) ** i * (i * 7919 % 23) / 4 for i in range(ALL)]
    keys, order = floats(ALL), ints(ALL)
    emulator.kernels.run_sorted_floats(floats(ALL, values), keys, order, descending, 0)
    expected = sorted(range(ALL), key=lambda i: -values[i] if descending else values[i])
    assert list(order) == expected
    assert [str(key) for key in keys] == [str(values[i]) for i in expected]


def test_items_are_counted_and_flagged(ordered: Emulator) -> None:
    values = [i * i // 90 for i in range(ALL)]
    bins, flags = (ctypes.c_uint * 10)(), ints(2 * ALL)
    ordered.kernels.run_counted(ints(ALL, values), bins, flags)
    assert list(bins) == [2 * sum(value % 10 == digit for value in values) for digit in range(10)]
    heads = [i == 0 or values[i] != values[i - 1] for i in range(ALL)]
    tails = [i == ALL - 1 or values[i] != values[i + 1] for i in range(ALL)]
    assert list(flags)[:ALL] == [head + 2 * tail for head, tail in zip(heads, tails, strict=True)]
    assert list(flags)[ALL:] == [False, *heads[1:]]
    assert ordered.reports() == []


def test_algorithms_of_warps(ordered: Emulator) -> None:
    x = [i * 37 % 101 for i in range(THREADS)]
    y = ints(13 * THREADS)
    ordered.kernels.run_of_warps(ints(THREADS, x), y)
    rows = [list(y)[row * THREADS : (row + 1) * THREADS] for row in range(13)]
    for thread in range(THREADS):
        lane, first = thread % 32, thread // 32 * 32
        warp, before = x[first : first + 32], x[first:thread]
        head = next((i for i in range(lane + 1, 32) if i % 7 == 3), 32)
        tail = next((i for i in range(lane, 32) if i % 7 == 3), 31)
        assert rows[0][thread] == (sum(warp) if lane == 0 else 0)
        assert rows[1][thread] == (max(warp[:13]) if lane == 0 else 0)
        assert rows[2][thread] == (min(x[thread : thread + 8]) if lane % 8 == 0 else 0)
        assert rows[3][thread] == (sum(warp[lane:head]) if lane == 0 or lane % 7 == 3 else 0)
        assert rows[4][thread] == (sum(warp[lane : tail + 1]) if lane == 0 or lane % 7 == 4 else 0)
        assert rows[5][thread] == sum(before) + x[thread]
        assert rows[6][thread] == sum(warp)
        assert rows[7][thread] == max([-1, *before])
        assert rows[8][thread] == 1001 * (5 + sum(before)) + 1000 * x[thread]
        assert rows[9][thread] == warp[3]
    best = max(range(THREADS), key=lambda i: (x[i], -i))
    assert rows[10][0] == 1000 * best + x[best]
    prefixes = [0, *accumulate(x)]
    assert rows[11] == [7 + before for before in prefixes[:-1]]
    assert rows[12] == [7 + prefixes[-1] + before for before in prefixes[:-1]]
    assert ordered.reports() == []


@pytest.mark.parametrize("logical", [32, 8])
def test_values_move_between_the_lanes_of_a_logical_warp(ordered: Emulator, logical: int) -> None:
    x = [random.Random(3).randrange(500) + 7 * i for i in range(96)]
    y = ints(4 * 96)
    ordered.kernels.run_shuffled(logical, ints(96, x), y)
    rows = [list(y)[row * 96 : row * 96 + 96] for row in range(4)]
    for thread in range(96):
        lane, first = thread % 32, thread // logical * logical
        assert rows[0][thread] == x[thread - 3 if thread - 3 >= first else thread]
        assert rows[1][thread] == x[thread + 2 if thread + 2 < first + logical else thread]
        assert rows[2][thread] == 2 * x[first + 1] + 1 + 1000 * ((first + 1) % 32)
        assert rows[3][thread] == thread // 32 * 100 + lane + 1000 * (32 - lane)
    assert ordered.reports() == []


@pytest.mark.parametrize("threads", [64, 256])
def test_a_warp_rakes_over_a_blocks_values(ordered: Emulator, threads: int) -> None:
    x = [random.Random(4).randrange(100) for _ in range(threads)]
    y = ints(threads)
    ordered.kernels.run_suffix_sums(threads, ints(threads, x), y)
    assert list(y) == list(accumulate(x[::-1]))[::-1]
    assert ordered.reports() == []

"""Tests CUB's algorithms of the whole device.

An H200 gave what the tests expect, with CUDA 13.0 (CUB 3.0.1). Histograms, runs, partitions, scans
by key, segments of equal size and sums of another type have not run there.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from .native import INVALID_VALUE, SUCCESS, Emulator, floats, ints

SOURCE = Path(__file__).with_name("cub_device.cu")
SIZES = (1, 63, 64, 65, 1000)
LARGEST = float.fromhex("0x1.fffffep127")  # of float


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def drawn(count: int) -> list[float]:
    draws = random.Random(count)
    return [draws.randrange(-512, 512) / 256 for _ in range(count)]


@pytest.mark.parametrize("n", SIZES)
def test_reductions(emulator: Emulator, n: int) -> None:
    x, out, place = drawn(n), floats(4), ints(2)
    assert emulator.kernels.reductions(floats(n, x), n, out, place) == SUCCESS
    assert list(out) == [sum(x), min(x), max(x), max(0.25, *x)]
    assert list(place) == [x.index(min(x)), x.index(max(x))]
    assert emulator.reports() == []


def test_nothing_is_the_identity(emulator: Emulator) -> None:
    out, place = floats(4), ints(2)
    assert emulator.kernels.reductions(floats(1), 0, out, place) == SUCCESS
    assert list(out) == [0, LARGEST, -LARGEST, 0.25]
    assert list(place) == [1, 1]


def test_a_long_sum_errs_no_more_than_a_gpu_s(emulator: Emulator) -> None:
    n = 1 << 16
    draws = random.Random(1)
    x = floats(n, (draws.random() for _ in range(n)))
    out, place = floats(4), ints(2)
    assert emulator.kernels.reductions(x, n, out, place) == SUCCESS
    assert math.isclose(out[0], math.fsum(x), rel_tol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_sums_by_key(emulator: Emulator, n: int) -> None:
    keys, x = [i // 7 % 3 for i in range(n)], drawn(n)
    unique, sums, runs = ints(n), floats(n), ints(1)
    assert emulator.kernels.by_key(ints(n, keys), floats(n, x), n, unique, sums, runs) == SUCCESS
    expected = [(key, sum(x[i] for i in group)) for key, group in itertools.groupby(range(n), keys.__getitem__)]
    assert list(zip(unique, sums, strict=True))[: runs[0]] == expected


@pytest.mark.parametrize("n", SIZES)
def test_scans(emulator: Emulator, n: int) -> None:
    draws = random.Random(n)
    x = [draws.randrange(-9, 99) for _ in range(n)]
    data, out = ints(n, x), ints(4 * n)
    assert emulator.kernels.scans(data, n, out) == SUCCESS
    before = [0, *itertools.accumulate(x)]
    most = list(itertools.accumulate(x, max))
    assert list(out) == [*before[:-1], *before[1:], *most, 7, *(max(7, one) for one in most[:-1])]
    assert list(data) == before[:-1]  # in place
    assert emulator.reports() == []


@pytest.mark.parametrize("n", SIZES)
def test_sorts(emulator: Emulator, n: int) -> None:
    keys = [-0.0 if i % 11 == 0 else x for i, x in enumerate(drawn(n))]
    sorted_keys, order = floats(3 * n), ints(2 * n)
    assert emulator.kernels.sorts(floats(n, keys), ints(n, range(n)), n, sorted_keys, order) == SUCCESS
    assert list(sorted_keys)[: 2 * n] == [*sorted(keys), *sorted(keys, reverse=True)]
    assert list(order)[:n] == sorted(range(n), key=keys.__getitem__)  # equal keys stay in order
    assert list(order)[n:] == sorted(range(n), key=lambda i: -keys[i])
    assert emulator.reports() == []


def test_some_bits(emulator: Emulator) -> None:
    n = 300
    keys = [i * 37 % 4096 for i in range(n)]
    other = ints(n)
    assert emulator.kernels.sorts_some_bits(ints(n, keys), n, other) == SUCCESS
    assert list(other) == sorted(keys, key=lambda key: key >> 4 & 15)


def test_by_a_comparison(emulator: Emulator) -> None:
    n = 300
    keys = drawn(n)
    in_order, order, alone = floats(n, keys), ints(n, range(n)), floats(n, keys)
    assert emulator.kernels.merge_sorts(in_order, order, alone, n) == SUCCESS
    assert list(in_order) == list(alone) == sorted(keys, key=abs)
    assert list(order) == sorted(range(n), key=lambda i: abs(keys[i]))


def test_segments(emulator: Emulator) -> None:
    offsets = [0, 3, 3, 40, 200]
    x, count = drawn(200), len(offsets) - 1
    sums, ordered = floats(2 * count), floats(200)
    assert emulator.kernels.segments(floats(200, x), 200, ints(5, offsets), count, sums, ordered) == SUCCESS
    parts = [x[begin:end] for begin, end in itertools.pairwise(offsets)]
    assert list(sums) == [*map(sum, parts), *(max(part, default=-LARGEST) for part in parts)]
    assert list(ordered) == [one for part in parts for one in sorted(part)]


def test_selections(emulator: Emulator) -> None:
    n = 100
    x = [i // 3 for i in range(n)]
    out, counts = ints(3 * n), ints(3)
    flags = bytes(i % 5 == 0 for i in range(n))
    assert emulator.kernels.selections(ints(n, x), flags, n, out, counts) == SUCCESS
    expected = [[one for one in x if one % 2], x[::5], sorted(set(x))]
    assert list(counts) == [len(one) for one in expected]
    assert [list(out)[i * n : i * n + counts[i]] for i in range(3)] == expected


def test_segments_of_equal_size(emulator: Emulator) -> None:
    rows, size = 7, 40
    n = rows * size
    keys = drawn(n)
    ordered, order = floats(3 * n), ints(2 * n)
    answer = emulator.kernels.segments_of_equal_size(floats(n, keys), ints(n, range(n)), rows, size, ordered, order)
    assert answer == SUCCESS
    places = [range(row * size, (row + 1) * size) for row in range(rows)]
    down = [i for row in places for i in sorted(row, key=lambda i: -keys[i])]
    up = [i for row in places for i in sorted(row, key=keys.__getitem__)]
    assert list(order) == down + up
    assert list(ordered) == [keys[i] for i in (*down, *up, *down)]


def test_histograms(emulator: Emulator) -> None:
    n = 500
    x, y = [i * 7 % 45 - 5 for i in range(n)], drawn(n)
    bins = ints(17, [9] * 17)
    assert emulator.kernels.histograms((ctypes.c_short * n)(*x), floats(n, y), n, bins) == SUCCESS
    levels = (-1.0, 0.0, 0.25, 1.0)
    expected = [
        *(sum(0 <= one < 30 and one // 3 == i for one in x) for i in range(10)),
        *(sum(-1 + i / 2 <= one < -0.5 + i / 2 for one in y) for i in range(4)),
        *(sum(low <= one < high for one in y) for low, high in itertools.pairwise(levels)),
    ]
    assert list(bins) == expected
    assert emulator.reports() == []


def test_runs(emulator: Emulator) -> None:
    n = 300
    x = [i * i // 50 for i in range(n)]
    unique, offsets, counts = ints(n), ints(n), ints(2)
    lengths = (ctypes.c_longlong * (2 * n))()
    assert emulator.kernels.runs(ints(n, x), n, unique, lengths, offsets, counts) == SUCCESS
    groups = [(key, len(list(group))) for key, group in itertools.groupby(x)]
    assert list(zip(unique, lengths, strict=False))[: counts[0]] == groups
    long = [(x.index(key), length) for key, length in groups if length > 1]
    assert list(zip(offsets, lengths[n:], strict=True))[: counts[1]] == long


def first_of_runs(keys: list[int], same: int) -> Iterable[int]:
    """Yields the places where a run of keys begins that have the same quotient."""
    return (i for i, key in enumerate(keys) if i == 0 or key // same != keys[i - 1] // same)


def test_unique_by_key(emulator: Emulator) -> None:
    n = 200
    keys, x = [i // 3 for i in range(n)], drawn(n)
    unique, first, counts = ints(2 * n), floats(2 * n), ints(2)
    assert emulator.kernels.unique_by_key(ints(n, keys), floats(n, x), n, unique, first, counts) == SUCCESS
    for case, same in enumerate((1, 10)):
        expected = [(keys[i], x[i]) for i in first_of_runs(keys, same)]
        found = slice(case * n, case * n + counts[case])
        assert list(zip(unique[found], first[found], strict=True)) == expected


def test_scans_by_key(emulator: Emulator) -> None:
    n = 300
    keys, x = [i // 90 * 7 for i in range(n)], [i * 31 % 101 for i in range(n)]
    out = ints(4 * n)
    assert emulator.kernels.scans_by_key(ints(n, keys), ints(n, x), n, out) == SUCCESS
    runs = [list(group) for _, group in itertools.groupby(range(n), keys.__getitem__)]
    tens = [list(group) for _, group in itertools.groupby(range(n), lambda i: keys[i] // 10)]
    sums = [list(itertools.accumulate((x[i] for i in run), initial=0)) for run in runs]
    most = [list(itertools.accumulate((x[i] for i in run), max, initial=50)) for run in runs]
    expected = [
        *(one for run in sums for one in run[1:]),
        *(one for run in sums for one in run[:-1]),
        *(one for run in tens for one in itertools.accumulate((x[i] for i in run), max)),
        *(one for run in most for one in run[:-1]),
    ]
    assert list(out) == expected


def test_partitions(emulator: Emulator) -> None:
    n = 100
    x = [i * 37 % 64 for i in range(n)]
    flags = bytes(i % 5 == 0 for i in range(n))
    out, counts = ints(2 * n), ints(2)
    assert emulator.kernels.partitions(ints(n, x), flags, n, out, counts) == SUCCESS
    odd = [one for one in x if one % 2] + [one for one in x if one % 2 == 0][::-1]
    flagged = x[::5] + [one for i, one in enumerate(x) if i % 5][::-1]
    assert list(out) == odd + flagged
    assert list(counts) == [sum(one % 2 for one in x), len(x[::5])]


def test_sums_have_the_type_of_the_operation_s_result(emulator: Emulator) -> None:
    n = 600
    out = ints(3 + 2 * n)
    assert emulator.kernels.of_flags(bytes([1] * n), n, out) == SUCCESS
    assert list(out) == [n, n, n, *range(n), *range(1, n + 1)]
    sums = floats(1 + 100)
    assert emulator.kernels.halves_from_an_integer(floats(100, [0.5] * 100), 100, sums) == SUCCESS
    assert list(sums) == [50, *(i / 2 for i in range(100))]


def test_too_little_storage_is_an_error(emulator: Emulator) -> None:
    assert emulator.kernels.too_little_storage(floats(9), 9, floats(9)) == INVALID_VALUE


def test_the_checking_mode_sees_what_they_read(emulator: Emulator) -> None:
    emulator.kernels.sum_of_more_than_there_is(130)
    if emulator.checked:
        report = emulator.only_report("out-of-bounds", "DeviceReduceKernel")
        assert "past the end of a cudaMalloc allocation of 520 bytes" in str(report["message"])

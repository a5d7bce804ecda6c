"""Tests Thrust's algorithms, vectors and iterators.

An H200 gave what the tests expect, with CUDA 13.0. Runs of equal keys, scans by key and of pairs,
differences, searches for one value, the memory of a policy, calls in a kernel and sums of another type have not run
there.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import SUCCESS, Emulator, floats, ints

SOURCE = Path(__file__).with_name("thrust.cu")
N = 150


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def drawn(seed: int) -> list[float]:
    draws = random.Random(seed)
    return [draws.randrange(-256, 256) / 64 for _ in range(N)]


def test_reductions(emulator: Emulator) -> None:
    x, out = drawn(1), floats(12)
    assert emulator.kernels.reductions(floats(N, x), N, out) == SUCCESS
    squares = sum(one * one for one in x)
    places = [x.index(max(x)), x.index(min(x))]
    negative = sum(one < 0 for one in x)
    found = [
        sum(x),
        max(x),
        squares,
        squares + 1,
        *places,
        min(x),
        negative,
        max(x) - min(x),
        1,
        x.index(x[-1]),
        squares,
    ]
    assert list(out) == found
    assert emulator.reports() == []


def test_each_element(emulator: Emulator) -> None:
    x, y, out = drawn(2), drawn(3), floats(8 * N)
    assert emulator.kernels.elementwise(floats(N, x), floats(N, y), N, out) == SUCCESS
    parts = [
        [one * one for one in x],
        [a - b for a, b in zip(x, y, strict=True)],
        [2 * a + b for a, b in zip(x, y, strict=True)],
        x[::-1],
        [0.5] * N,
        [3.0 + 2 * i for i in range(N)],
        x[::-1],
        [i // 2 for i in range(N)],
    ]
    assert [list(out)[i * N : (i + 1) * N] for i in range(8)] == parts
    assert emulator.reports() == []


def test_scans(emulator: Emulator) -> None:
    x = [i * 7 % 31 - 9 for i in range(N)]
    out = ints(4 * N)
    assert emulator.kernels.scans(ints(N, x), N, out) == SUCCESS
    before = [0, *itertools.accumulate(x)]
    most = itertools.accumulate(x, max)
    assert list(out) == [*before[1:], *before[:-1], *most, *(10 + one for one in before[:-1])]


def test_sorts(emulator: Emulator) -> None:
    keys = drawn(4)
    in_order, order, alone = floats(N, keys), ints(N), floats(N, keys)
    assert emulator.kernels.sorts(in_order, order, alone, N) == SUCCESS
    assert list(in_order) == sorted(keys)
    assert list(order) == sorted(range(N), key=keys.__getitem__)
    assert list(alone) == sorted(keys, reverse=True)
    assert emulator.reports() == []


def test_selections(emulator: Emulator) -> None:
    x = [i // 3 for i in range(N)]
    out, counts = ints(3 * N), ints(3)
    assert emulator.kernels.selections(ints(N, x), N, out, counts) == SUCCESS
    expected = [[one for one in x if one % 2], [one for one in x if one % 2 == 0], sorted(set(x))]
    assert list(counts) == [len(one) for one in expected]
    assert [list(out)[i * N : i * N + counts[i]] for i in range(3)] == expected


def test_sums_by_key(emulator: Emulator) -> None:
    keys, x = [i // 4 % 5 for i in range(N)], [i * 3 % 17 for i in range(N)]
    unique, sums = ints(N), ints(2 * N)
    runs = emulator.kernels.by_key(ints(N, keys), ints(N, x), N, unique, sums)
    groups = [(key, list(group)) for key, group in itertools.groupby(range(N), keys.__getitem__)]
    assert list(unique)[:runs] == [key for key, _ in groups]
    assert list(sums)[:runs] == [sum(x[i] for i in group) for _, group in groups]
    assert list(sums)[N : N + runs] == [len(group) for _, group in groups]


def test_by_index(emulator: Emulator) -> None:
    places = list(range(N))
    random.Random(5).shuffle(places)
    x, ordered = [i * 5 % 97 for i in range(N)], sorted(i * 11 % 89 for i in range(N))
    out = ints(6 * N, [0] * (3 * N) + ordered)
    assert emulator.kernels.indexed(ints(N, places), ints(N, x), N, out) == SUCCESS
    gathered = [x[place] for place in places]
    scattered = [x[places.index(i)] for i in range(N)]
    low, high = ([find(ordered, one) for one in x] for find in (bisect.bisect_left, bisect.bisect_right))
    assert list(out) == [*gathered[::-1], *scattered, *gathered, *ordered, *low, *high]


def runs_of(keys: list[int], by: int = 1) -> list[list[int]]:
    """The places of each run of keys with the same quotient."""
    return [list(group) for _, group in itertools.groupby(range(len(keys)), lambda i: keys[i] // by)]


def test_runs_of_equal_keys(emulator: Emulator) -> None:
    keys = [i // 3 for i in range(N)]
    out, places, counts = ints(4 * N), ints(3 * N), ints(5)
    assert emulator.kernels.runs(ints(N, keys), N, out, places, counts) == SUCCESS
    alone, tens = runs_of(keys), runs_of(keys, 10)
    assert list(counts) == [len(tens), len(tens), len(alone), len(tens), len(tens)]
    firsts = [keys[run[0]] for run in tens]
    assert out[: len(tens)] == out[N : N + len(tens)] == out[3 * N : 3 * N + len(tens)] == firsts
    assert places[: len(alone)] == [run[0] for run in alone]
    assert places[N : N + len(tens)] == [run[0] for run in tens]
    assert places[2 * N : 2 * N + len(tens)] == [keys[run[-1]] for run in tens]
    assert emulator.reports() == []


def test_scans_by_key(emulator: Emulator) -> None:
    keys, x, out = [i // 40 * 7 for i in range(N)], [i * 31 % 17 for i in range(N)], ints(4 * N)
    assert emulator.kernels.scans_by_key(ints(N, keys), ints(N, x), N, out) == SUCCESS
    sums = [list(itertools.accumulate((x[i] for i in run), initial=0)) for run in runs_of(keys)]
    expected = [
        *(one for run in sums for one in run[1:]),
        *(one for run in sums for one in run[:-1]),
        *(one for run in runs_of(keys, 10) for one in itertools.accumulate((x[i] for i in run), max)),
        *(7 + one for run in sums for one in run[:-1]),
    ]
    assert list(out) == expected
    assert emulator.reports() == []


def test_a_scan_of_pairs_from_the_end(emulator: Emulator) -> None:
    slopes, x = [1 - i % 3 for i in range(N)], list(range(N))
    product, out = ints(N), ints(N)
    assert emulator.kernels.scan_of_pairs_from_the_end(ints(N, slopes), ints(N, x), N, product, out) == SUCCESS
    lines = itertools.accumulate(
        zip(slopes[::-1], x[::-1], strict=True), lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1])
    )
    assert list(zip(product, out, strict=True))[::-1] == list(lines)


def test_differences(emulator: Emulator) -> None:
    x, out = [i * i // 7 for i in range(N)], ints(3 * N)
    assert emulator.kernels.differences(ints(N, x), N, out) == SUCCESS
    pairs = list(itertools.pairwise(x))
    expected = [[b - a for a, b in pairs], [a != b for a, b in pairs], [a + b for a, b in pairs]]
    assert list(out) == [one for part in expected for one in (x[0], *part)]


@pytest.mark.parametrize("x", [-1, 0, 25, 26, 3 * N])
def test_searches(emulator: Emulator, x: int) -> None:
    falling, found = [2 * (N - i) for i in range(N)], ints(4)
    assert emulator.kernels.searches(ints(N, falling), N, x, found) == SUCCESS
    assert list(found) == [sum(one > x for one in falling), sum(one >= x for one in falling), x in falling, 1]


def test_memory_of_a_policy(emulator: Emulator) -> None:
    assert emulator.kernels.memory_of_a_policy(N) == SUCCESS
    assert emulator.reports() == []


def test_a_thread_of_a_kernel_runs_them_itself(emulator: Emulator) -> None:
    rows, n = 3, 20
    x = drawn(6)[: rows * n]
    data = floats(2 * rows * n, x)
    assert emulator.kernels.in_a_kernel(data, rows, n) == SUCCESS
    parts = [sorted(x[row * n : (row + 1) * n]) for row in range(rows)]
    assert list(data)[: rows * n] == [one for part in parts for one in part]
    assert [data[(rows + row) * n] for row in range(rows)] == [sum(part) for part in parts]
    # What its threads have freed is no longer lent to kernels, beside larger arrays that still are.
    large = 1 << 16
    emulator.kernels.halves_from_an_integer(floats(large), large, floats(large))
    assert emulator.reports() == []


def test_sums_have_the_type_of_the_operation_s_result(emulator: Emulator) -> None:
    out = floats(N)
    emulator.kernels.halves_from_an_integer.restype = ctypes.c_float
    assert emulator.kernels.halves_from_an_integer(floats(N, [0.5] * N), N, out) == N // 2
    assert list(out) == [i / 2 for i in range(N)]


def test_vectors_copy_between_host_and_device(emulator: Emulator) -> None:
    assert emulator.kernels.vectors(N) == SUCCESS
    assert emulator.reports() == []


def test_the_checking_mode_sees_what_they_read(emulator: Emulator) -> None:
    emulator.kernels.sum_of_more_than_there_is(N)
    if emulator.checked:
        report = emulator.only_report("out-of-bounds", "thrust::reduce")
        assert "past the end of a cudaMalloc allocation of 600 bytes" in str(report["message"])


def test_without_a_policy_plain_pointers_are_the_host_s(emulator: Emulator) -> None:
    emulator.kernels.sort_without_a_policy(N)
    if emulator.checked:
        assert "host code reads 4 bytes of a cudaMalloc allocation" in str(emulator.reports()[0]["message"])

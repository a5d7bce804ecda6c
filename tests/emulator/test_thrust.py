"""Tests Thrust's algorithms, vectors and iterators. An H200 gave what the tests expect, with CUDA 13.0."""

from __future__ import annotations

import bisect
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

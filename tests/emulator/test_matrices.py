"""Tests warp matrices (wmma): products of every shape, type and layout, their rounding, and misuse."""

from __future__ import annotations

import ctypes
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import LAUNCH_FAILURE, SUCCESS, Emulator, floats, ints, line_of

SOURCE = Path(__file__).with_name("matrices.cu")
MISALIGNED = 716
SHAPES = {16: (16, 16, 16), 32: (32, 8, 16), 8: (8, 32, 16)}


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def half(value: float) -> int:
    return struct.unpack("<H", struct.pack("<e", value))[0]


def bfloat16(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0] >> 16


# The type's storage, and the bits or number stored for a value.
STORED = {
    "half": (ctypes.c_ushort, half),
    "bfloat16": (ctypes.c_ushort, bfloat16),
    "tf32": (ctypes.c_float, float),
    "double": (ctypes.c_double, float),
    "int8": (ctypes.c_byte, int),
    "uint8": (ctypes.c_ubyte, int),
}
SUMS = {"double": ctypes.c_double, "int8": ctypes.c_int, "uint8": ctypes.c_int}


def stored(name: str, tiles: list[list[list[float]]], by_rows: bool) -> ctypes.Array:
    """Matrices in memory, one after the other, by rows or by columns, in lines of a multiple of 16 bytes."""
    kind, convert = STORED[name]
    align = 16 // ctypes.sizeof(kind)
    values = []
    for matrix in tiles:
        lines = matrix if by_rows else [list(column) for column in zip(*matrix, strict=True)]
        for line in lines:
            values += [convert(value) for value in line] + [convert(0)] * (-len(line) % align)
    return (kind * len(values))(*values)


@pytest.mark.parametrize("layouts", range(8))
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, shape) for name in ("half", "bfloat16", "int8", "uint8") for shape in SHAPES),
        ("tf32", (16, 16, 8)),
        ("double", (8, 8, 4)),
    ],
)
def test_products(emulator: Emulator, name: str, shape: object, layouts: int) -> None:
    m, n, k = SHAPES[shape] if isinstance(shape, int) else shape
    steps = 2 if name != "double" else 4
    generator = random.Random(layouts)
    # No -1, whose byte alone looks like memory that nobody has written.
    some = range(9) if name == "uint8" else [-7, -6, -5, -4, -3, -2, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    a = [[generator.choices(some, k=k) for _ in range(m)] for _ in range(steps)]
    b = [[generator.choices(some, k=n) for _ in range(k)] for _ in range(steps)]
    c = [[generator.randint(-50, 50) for _ in range(n)] for _ in range(m)]
    sums_by_rows = bool(layouts & 4)
    lines = c if sums_by_rows else [list(column) for column in zip(*c, strict=True)]
    sums = (SUMS.get(name, ctypes.c_float) * (m * n))(*(value for line in lines for value in line))
    run = getattr(emulator.kernels, f"product_{name}")
    given = stored(name, a, bool(layouts & 1)), stored(name, b, bool(layouts & 2))
    assert run(shape if isinstance(shape, int) else 0, *given, sums, steps, layouts) == SUCCESS
    for row in range(m):
        for column in range(n):
            products = sum(a[s][row][i] * b[s][i][column] for s in range(steps) for i in range(k))
            expected = 2 * (c[row][column] + products)
            assert sums[row * n + column if sums_by_rows else column * m + row] == expected
    assert emulator.reports() == []


def test_factors_keep_their_precision_and_sums_are_floats(emulator: Emulator) -> None:
    # 1 + 2**-10 squared takes 20 bits after the point; as a sum of halves it would be 1 + 2**-9.
    factor = 1 + 2**-10
    a = [[factor if row == i else 0.0 for i in range(16)] for row in range(16)]
    given, sums = stored("half", [a], True), floats(256)
    emulator.kernels.product_half(16, given, given, sums, 1, 7)
    assert sums[0] == 2 * factor * factor
    # One step below 1 in float is lost beside 2**24 and kept in double.
    large = [[2.0**12 if row == i else 0.0 for i in range(16)] for row in range(16)]
    given, sums = stored("half", [large], True), floats(256, [1.0] * 256)
    emulator.kernels.product_half(16, given, given, sums, 1, 7)
    assert sums[0] == 2 * 2.0**24
    assert sums[1] == 2.0


def test_accumulators_of_half_round_their_sums(emulator: Emulator) -> None:
    a = [[1.0] * 16 for _ in range(16)]
    sums = (ctypes.c_ushort * 256)(*[half(1024.0)] * 256)
    assert (
        emulator.kernels.product_half_half(16, stored("half", [a], True), stored("half", [a], True), sums, 1, 7)
        == SUCCESS
    )
    assert set(sums) == {half(2 * 1040.0)}
    # 1000.25 is no half; the nearest is 1000, by steps of 0.5.
    quarter = [[0.25 if i == 0 else 0.0 for i in range(16)] for _ in range(16)]
    sums = (ctypes.c_ushort * 256)(*[half(1000.0)] * 256)
    emulator.kernels.product_half_half(16, stored("half", [quarter], True), stored("half", [a], True), sums, 1, 7)
    assert set(sums) == {half(2000.0)}


def test_the_lower_bits_of_a_tf32_do_not_count(emulator: Emulator) -> None:
    identity = [[1.0 if row == i else 0.0 for i in range(8)] for row in range(16)]
    values = [[1 + 2**-10 + 2**-11 + 2**-20 for _ in range(16)] for _ in range(8)]
    sums = floats(256)
    emulator.kernels.product_tf32(0, stored("tf32", [identity], True), stored("tf32", [values], True), sums, 1, 7)
    assert sums[0] == 2 * (1 + 2**-10)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (1.0, 1.0),
        (1 + 2**-11, 1 + 2**-10),
        (-1 - 2**-11, -1 - 2**-10),
        (1 + 2**-11 - 2**-23, 1.0),
        (3.14159274, 3.140625),
        (float("inf"), float("inf")),
    ],
)
def test_rounding_to_tf32_takes_ties_away_from_zero(emulator: Emulator, value: float, rounded: float) -> None:
    x = floats(1, [value])
    emulator.kernels.run_rounded(x, 1)
    assert x[0] == rounded


def test_several_warps_and_accumulators_of_two_types(emulator: Emulator) -> None:
    out = floats(4 * 256)
    emulator.kernels.run_mixed(out)
    assert list(out) == [16.0 * (i // 256) + 0.5 for i in range(4 * 256)]
    assert emulator.reports() == []


def test_integer_sums_wrap_or_saturate(emulator: Emulator) -> None:
    out = ints(32)
    emulator.kernels.run_saturating(out, 1)
    assert set(out) == {0x7FFFFFFF}
    emulator.kernels.run_saturating(out, 0)
    assert set(out) == {ctypes.c_int(0x7FFFFFF0 + 16 * 127 * 127).value}


@pytest.mark.parametrize(
    ("which", "kernel", "threads", "text"),
    [
        (0, "some_lanes", 32, "some have ended"),
        (1, "two_matrices", 32, "different arguments"),
        (1, "two_matrices", 16, "some have ended or never were"),
    ],
)
def test_operations_that_not_all_lanes_reach_alike_are_divergence(
    emulator: Emulator, which: int, kernel: str, threads: int, text: str
) -> None:
    assert emulator.kernels.run_misuse(which, threads, 0, 16) == LAUNCH_FAILURE
    report = emulator.only_report("divergence", kernel)
    assert report["line"] == line_of(SOURCE, "_matrix_sync", f"void {kernel}")
    assert text in report["message"]


def test_lanes_in_different_operations_are_reported(emulator: Emulator) -> None:
    assert emulator.kernels.run_misuse(2, 32, 0, 16) == LAUNCH_FAILURE
    message = emulator.only_report("mask", "two_operations")["message"]
    assert "load_matrix_sync()" in message
    assert "store_matrix_sync()" in message


@pytest.mark.parametrize(("offset", "stride"), [(4, 16), (1, 16), (0, 18), (0, 17)])
def test_misaligned_matrices_are_reported(emulator: Emulator, offset: int, stride: int) -> None:
    assert emulator.kernels.run_misuse(3, 32, offset, stride) == MISALIGNED
    report = emulator.only_report("misaligned", "misplaced")
    assert report["line"] == line_of(SOURCE, "load_matrix_sync", "void misplaced")
    assert f"{offset * 4} bytes after" in report["message"]
    assert f"stride is {stride * 4} bytes" in report["message"]


@pytest.mark.parametrize(("offset", "stride"), [(8, 16), (0, 20), (64, 16)])
def test_aligned_matrices_are_silent(emulator: Emulator, offset: int, stride: int) -> None:
    assert emulator.kernels.run_misuse(3, 32, offset, stride) == SUCCESS
    assert emulator.reports() == []


def test_a_matrix_beyond_its_allocation_is_found_where_it_is_loaded(emulator: Emulator) -> None:
    if not emulator.checked:
        pytest.skip("reads are looked at in the checking mode alone")
    emulator.kernels.run_misuse(3, 32, 4096 - 128, 16)
    report = emulator.only_report("out-of-bounds", "misplaced")
    assert report["line"] == line_of(SOURCE, "load_matrix_sync", "void misplaced")

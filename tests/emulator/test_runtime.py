"""Tests the emulator's C++ runtime with kernels in the form that the rewriter produces."""

from __future__ import annotations

import ctypes
import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import (
    ASSERT,
    INVALID_CONFIGURATION,
    INVALID_VALUE,
    LAUNCH_FAILURE,
    ORDERS,
    SUCCESS,
    Emulator,
    floats,
    ints,
)
from .native import line_of as line_in

SOURCE = Path(__file__).with_name("runtime_kernels.cpp")


@pytest.fixture(scope="session")
def built(native: Callable[..., Emulator]) -> Emulator:
    emulator = native(SOURCE)
    emulator.kernels.run_host_api.restype = ctypes.c_float
    emulator.kernels.from_half.restype = ctypes.c_float
    emulator.kernels.bfloat16_fma.restype = ctypes.c_float
    return emulator


def line_of(text: str, after: str) -> int:
    return line_in(SOURCE, text, after)


@pytest.mark.parametrize(("blocks", "threads"), [(1, 32), (1, 1024), (13, 256), (300, 96)])
def test_reduction_with_shuffles_shared_memory_and_an_atomic(ordered: Emulator, blocks: int, threads: int) -> None:
    x, total = floats(10007, (i % 7 for i in range(10007))), floats(1)
    ordered.kernels.run_block_sum(x, total, len(x), blocks, threads)
    assert total[0] == sum(x)
    assert ordered.reports() == []


@pytest.mark.parametrize(("size", "width"), [(1, 4), (16, 16), (37, 8), (40, 32)])
def test_tiled_product_in_dynamic_shared_memory(ordered: Emulator, size: int, width: int) -> None:
    a = floats(size * size, (i * 3 % 5 for i in range(size * size)))
    b = floats(size * size, (i * 7 % 11 for i in range(size * size)))
    c = floats(size * size)
    ordered.kernels.run_product(a, b, c, size, width, 2 * width * width * 4)
    expected = [
        sum(a[row * size + k] * b[k * size + column] for k in range(size))
        for row in range(size)
        for column in range(size)
    ]
    assert list(c) == expected
    assert ordered.reports() == []


def test_histogram_with_shared_atomics(ordered: Emulator) -> None:
    x, counts = ints(5000, (i * i % 16 for i in range(5000))), ints(16)
    ordered.kernels.run_histogram(x, counts, len(x))
    assert list(counts) == [list(x).count(value) for value in range(16)]


@pytest.mark.parametrize("live", [1, 33, 50, 96])
def test_barriers_ignore_threads_that_returned_early(ordered: Emulator, live: int) -> None:
    out = ints(96)
    ordered.kernels.run_early_return(out, live)
    expected = 5 + 10 * (live // 2) + 20000 * (live > 3)
    assert list(out) == [expected] * live + [0] * (96 - live)
    assert ordered.reports() == []


def test_builtin_indices_in_three_dimensions(ordered: Emulator) -> None:
    out = ints(24 * 60)
    ordered.kernels.run_indices(out)
    assert list(out) == [i // 60 * 1000 + i % 60 for i in range(24 * 60)]


def test_warp_functions(ordered: Emulator) -> None:
    out = ints(256)
    ordered.kernels.run_warp_functions(out)
    lanes = range(32)
    assert list(out[0:32]) == [lane // 8 * 8 + 3 for lane in lanes]
    assert list(out[32:64]) == [lane - 2 if lane % 16 >= 2 else lane for lane in lanes]
    assert list(out[64:96]) == [lane + 5 if lane < 27 else lane for lane in lanes]
    assert list(out[96:128]) == [0xF] * 32
    assert [value & 0xFFFFFFFF for value in out[128:160]] == [0xFFFF] * 16 + [0xFFFF0000] * 16
    assert list(out[160:192]) == [sum(lanes) + 1000] * 32
    assert list(out[192:200]) == [lane ^ 1 for lane in range(8)]
    assert list(out[224:232]) == [2 * (lane ^ 2) for lane in range(8)]
    assert ordered.reports() == []


def test_a_race_hidden_by_one_order_shows_in_another(emulator: Emulator) -> None:
    wrong = {}
    for name, order in ORDERS.items():
        out = ints(64)
        emulator.runtime.cuemu_set_order(order, 3)
        emulator.kernels.run_hidden_race(out)
        wrong[name] = sum(value != i // 2 for i, value in enumerate(out))
    assert wrong["forward"] == 0
    assert wrong["reverse"] > 0
    assert wrong["random"] > 0


def test_unwritten_shared_memory_reads_as_nan(ordered: Emulator) -> None:
    out = floats(2)
    ordered.kernels.run_poison(out)
    assert all(math.isnan(value) for value in out)


def test_a_lock_taken_by_compare_and_swap(ordered: Emulator) -> None:
    lock, counter = ints(1), ints(1)
    ordered.kernels.run_lock(lock, counter)
    assert counter[0] == 8 * 128


def test_atomics_of_every_kind_of_number(ordered: Emulator) -> None:
    total, wide, extrema, half = floats(1), ctypes.c_double(0), ints(2), ctypes.c_ushort(0)
    ordered.kernels.run_float_atomics(total, ctypes.byref(wide), extrema, ctypes.byref(half))
    assert (total[0], wide.value, list(extrema)) == (1024.0, 512.0, [-1023, 1023])
    assert ordered.kernels.from_half(half) == 512.0


def test_different_barriers_are_divergence(ordered: Emulator) -> None:
    ordered.kernels.run_divergence()
    report = ordered.only_report("divergence", "divergence")
    first = line_of("__syncthreads", "void divergence")
    assert {access["line"] for access in report["accesses"]} == {first, first + 2}
    assert {access["thread"][0] < 10 for access in report["accesses"]} == {True, False}
    assert ordered.last_error() == LAUNCH_FAILURE


def test_a_barrier_that_not_all_reach_is_a_deadlock(emulator: Emulator) -> None:
    emulator.kernels.run_deadlock()
    report = emulator.only_report("deadlock", "deadlock")
    assert "40 threads" in report["message"]
    assert "24 threads" in report["message"]
    assert "__shfl_sync()" in report["message"]
    assert len(report["accesses"]) == 2


@pytest.mark.parametrize(("kernel", "kind"), [("wrong_mask", "mask"), ("lanes_disagree", "mask")])
def test_misused_warp_operations(ordered: Emulator, kernel: str, kind: str) -> None:
    getattr(ordered.kernels, f"run_{kernel}")()
    ordered.only_report(kind, kernel)


def test_a_failed_launch_ends_the_use_of_the_device(emulator: Emulator) -> None:
    emulator.kernels.run_deadlock()
    total = floats(1)
    emulator.kernels.run_block_sum(floats(4, [1, 1, 1, 1]), total, 4, 1, 32)
    assert total[0] == 0.0
    assert [emulator.last_error(), emulator.last_error()] == [LAUNCH_FAILURE] * 2
    assert emulator.runtime.cuemu_cudaGetErrorString(LAUNCH_FAILURE) == b"unspecified launch failure"
    emulator.runtime.cuemu_clear_error()
    emulator.kernels.run_block_sum(floats(4, [1, 1, 1, 1]), total, 4, 1, 32)
    assert total[0] == 4.0


def test_the_cuda_runtime_that_a_torch_for_gpus_loads_is_not_called(built: Emulator, tmp_path: Path) -> None:
    names = ("GetLastError", "PeekAtLastError", "DeviceSynchronize", "GetDevice", "GetDeviceProperties", "MemGetInfo")
    source = tmp_path / "cudart.c"
    source.write_text("\n".join(f"int cuda{name}() {{ return 100; }}" for name in names))
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", source, "-o", tmp_path / "cudart.so"], check=True)
    program = (
        "import ctypes, sys\n"
        "sys.path.insert(0, sys.argv[4])\n"
        "ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)\n"
        "from tests.emulator.native import Emulator, floats\n"
        "emulator, total = Emulator(*sys.argv[2:4]), floats(1)\n"
        "emulator.kernels.run_block_sum(floats(4, [1, 2, 3, 4]), total, 4, 1, 32)\n"
        "print(total[0], emulator.kernels.run_deadlock(), emulator.last_error())\n"
    )
    places = [tmp_path / "cudart.so", built.runtime._name, built.kernels._name, Path(__file__).parents[2]]
    ran = subprocess.run([sys.executable, "-c", program, *map(str, places)], capture_output=True, text=True)
    assert ran.stdout.split()[0::2] == ["10.0", str(LAUNCH_FAILURE)], ran.stdout + ran.stderr


@pytest.mark.parametrize(("shift", "side"), [(1, "past the end"), (-1, "before the start")])
def test_a_write_outside_a_shared_variable(ordered: Emulator, shift: int, side: str) -> None:
    ordered.kernels.run_shared_overrun(shift)
    report = ordered.only_report("out-of-bounds", "shared_overrun")
    assert side in report["message"]
    assert "tile" in report["message"]
    assert report["line"] == line_of("SHARED", "void shared_overrun")


def test_a_write_past_dynamic_shared_memory(emulator: Emulator) -> None:
    matrix = floats(16)
    emulator.kernels.run_product(matrix, matrix, floats(16), 4, 4, 2 * 4 * 4 * 4 - 4)
    assert "gives it 124 bytes" in emulator.only_report("out-of-bounds", "product")["message"]


@pytest.mark.parametrize(
    ("count", "shift", "where"),
    [(100, 1, "byte offsets 400 to 403"), (33, -2, "1 to 8 bytes before the start"), (7, 3, "offsets 28 to 39")],
)
def test_a_write_outside_device_memory(ordered: Emulator, count: int, shift: int, where: str) -> None:
    assert ordered.kernels.run_global_overrun(count, shift) == SUCCESS
    report = ordered.only_report("out-of-bounds", "fill")
    assert where in report["message"]
    assert report["line"] == line_of("LAUNCH(fill", "run_global_overrun")


def test_writes_inside_device_memory_are_silent(ordered: Emulator) -> None:
    assert ordered.kernels.run_global_overrun(100, 0) == SUCCESS
    assert ordered.reports() == []


@pytest.mark.parametrize(
    ("grid", "block", "block_z", "shared_bytes", "error"),
    [
        (1, 1025, 1, 0, INVALID_CONFIGURATION),
        (1, 0, 1, 0, INVALID_CONFIGURATION),
        (1, 1, 65, 0, INVALID_CONFIGURATION),
        (1, 512, 3, 0, INVALID_CONFIGURATION),
        (0, 32, 1, 0, INVALID_CONFIGURATION),
        (-1, 32, 1, 0, INVALID_CONFIGURATION),
        (1, 32, 1, 48 * 1024 + 1, INVALID_VALUE),
    ],
)
def test_launches_beyond_the_limits(
    emulator: Emulator, grid: int, block: int, block_z: int, shared_bytes: int, error: int
) -> None:
    assert emulator.kernels.run_configuration(grid, block, block_z, shared_bytes) == error
    report = emulator.only_report("launch", "fill")
    words = {INVALID_CONFIGURATION: "invalid configuration argument", INVALID_VALUE: "invalid argument"}
    assert report["message"].startswith(words[error])
    assert emulator.last_error() == SUCCESS


@pytest.mark.parametrize(("block", "block_z", "shared_bytes"), [(1024, 1, 48 * 1024), (1, 64, 0), (16, 64, 0)])
def test_launches_at_the_limits(emulator: Emulator, block: int, block_z: int, shared_bytes: int) -> None:
    assert emulator.kernels.run_configuration(1, block, block_z, shared_bytes) == SUCCESS
    assert emulator.reports() == []


def test_the_attribute_raises_the_limit_of_shared_memory(emulator: Emulator) -> None:
    assert emulator.kernels.run_raised_limit(227 * 1024) == SUCCESS
    assert emulator.reports() == []
    assert emulator.kernels.run_raised_limit(227 * 1024 + 1) == INVALID_VALUE


def test_too_large_shared_variables(emulator: Emulator) -> None:
    emulator.kernels.run_much_shared()
    assert "49156 bytes" in emulator.only_report("launch", "much_shared")["message"]


def test_device_assertion(emulator: Emulator, capfd: pytest.CaptureFixture[str]) -> None:
    emulator.kernels.run_assert(64)
    assert emulator.reports() == []
    emulator.kernels.run_assert(40)
    assert "thread (40,0,0)" in emulator.only_report("assert", "asserting")["message"]
    assert emulator.last_error() == ASSERT
    assert "Assertion `static_cast<int>(threadIdx.x) < n` failed." in capfd.readouterr().err


def test_trap(emulator: Emulator) -> None:
    emulator.kernels.run_trap(5)
    assert "thread (5,0,0)" in emulator.only_report("trap", "trapping")["message"]
    assert emulator.last_error() == LAUNCH_FAILURE


def test_host_interface(ordered: Emulator) -> None:
    assert ordered.kernels.run_host_api(64) == sum(2 * i * (i % 4 + 1) for i in range(64))


def test_launches_work_after_a_fork(built: Emulator, tmp_path: Path) -> None:
    program = tmp_path / "fork.py"
    program.write_text(
        "import ctypes, os, sys\n"
        "kernels = ctypes.CDLL(sys.argv[1])\n"
        "def run():\n"
        "    x, total = (ctypes.c_float * 4000)(*[1.0] * 4000), ctypes.c_float(0)\n"
        "    kernels.run_block_sum(x, ctypes.byref(total), 4000, 16, 256)\n"
        "    return total.value == 4000.0\n"
        "before = run()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if run() else 1)\n"
        "status = os.waitpid(child, 0)[1]\n"
        "sys.exit(0 if before and status == 0 and run() else 1)\n"
    )
    environment = {**os.environ, "CUEMU_THREADS": "4"}
    finished = subprocess.run(
        [sys.executable, str(program), str(built.kernels._name)], env=environment, timeout=60, check=False
    )
    assert finished.returncode == 0


def half_bits(value: float) -> int:
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


def test_half_conversions_round_to_nearest_even(emulator: Emulator) -> None:
    for bits in range(0x10000):
        value = emulator.kernels.from_half(bits)
        if bits & 0x7FFF > 0x7C00:
            assert math.isnan(value)
            continue
        assert value == struct.unpack("<e", struct.pack("<H", bits))[0]
        assert emulator.kernels.to_half(ctypes.c_float(value)) & 0xFFFF == bits
    generator = random.Random(5)
    for _ in range(20000):
        value = math.ldexp(generator.uniform(-2, 2), generator.randint(-27, 16))
        single = ctypes.c_float(value)
        assert emulator.kernels.to_half(single) & 0xFFFF == half_bits(single.value)
        assert emulator.kernels.double_to_half(ctypes.c_double(value)) & 0xFFFF == half_bits(value)
    assert emulator.kernels.to_half(ctypes.c_float(math.nan)) & 0xFFFF == 0x7FFF


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1.0, 0x3F80),
        (1.00390625, 0x3F80),
        (1.01171875, 0x3F82),
        (-3.4e38, 0xFF80),
        (1e-40, 0x0001),
        (math.nan, 0x7FFF),
    ],
)
def test_bfloat16_conversions_round_to_nearest_even(emulator: Emulator, value: float, bits: int) -> None:
    assert emulator.kernels.to_bfloat16(ctypes.c_float(value)) & 0xFFFF == bits


def test_fma_rounds_once(emulator: Emulator) -> None:
    # 3 * 683 and 7 * 37 lie halfway between two representable numbers, so that the smallest addend decides.
    smallest = half_bits(2.0**-24)
    assert emulator.kernels.half_fma(half_bits(3), half_bits(683), smallest) & 0xFFFF == half_bits(2050)
    factors = [ctypes.c_float(value) for value in (7, 37, -(2.0**-100))]
    assert emulator.kernels.bfloat16_fma(*factors) == 258

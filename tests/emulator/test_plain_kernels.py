"""Tests kernels that the emulator runs as plain loops: which ones qualify, and that results are the same."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.emulator.compiler import find_compiler
from harness.emulator.rewrite import rewrite_cuda

from .native import ASSERT, COMPILE, LAUNCH_FAILURE, ORDERS, Emulator, floats, ints, line_of

SOURCE = Path(__file__).with_name("plain_kernels.cu")


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


@pytest.fixture(params=ORDERS)
def emulator(request: pytest.FixtureRequest, built: Emulator) -> Iterator[Emulator]:
    """The emulator in each order of threads and blocks."""
    built.begin()
    built.runtime.cuemu_set_order(ORDERS[request.param], 7)
    yield built
    built.reset()


@pytest.fixture
def forward(built: Emulator) -> Iterator[Emulator]:
    built.begin()
    yield built
    built.reset()


@pytest.mark.parametrize(("count", "threads"), [(1, 1), (1000, 256), (1024, 128), (777, 1024), (999, 37)])
def test_every_element_once_and_bit_for_bit(emulator: Emulator, count: int, threads: int) -> None:
    x, by_loop, by_threads = floats(count, (i * 0.37 for i in range(count))), floats(count + 8), floats(count + 8)
    emulator.kernels.run_scale(x, by_loop, count, threads)
    emulator.kernels.run_scale_by_threads(x, by_threads, count, threads)
    assert bytes(by_loop) == bytes(by_threads)
    assert by_loop[count - 1] > 0
    assert list(by_loop[count:]) == [0] * 8
    assert emulator.reports() == []


@pytest.mark.parametrize("built", [False], indirect=True, ids=["fast"])
def test_more_blocks_than_indices_have_bits_for(forward: Emulator) -> None:
    count = (1 << 21) + 3
    x, y = floats(count), floats(count)
    forward.kernels.run_scale(x, y, count, 1)
    assert set(y) == {1.0}


def test_parameters_belong_to_each_thread_and_some_return_early(emulator: Emulator) -> None:
    values = [0.0, float("nan"), -3.0, 1e9, *range(200)]
    x, y = floats(300, values), floats(300)
    emulator.kernels.run_clamp_root(x, y, 204)
    clamped = [min(value, 50.0) if value == value else 50.0 for value in values]
    expected = [max(value, 0.25) ** 0.5 / (1 + max(value, 0.25)) for value in clamped]
    assert list(y[:204]) == pytest.approx(expected, rel=1e-6)
    assert list(y[204:]) == [0] * 96


@pytest.mark.parametrize("built", [False], indirect=True, ids=["fast"])
def test_threads_that_depend_on_each_other_run_one_after_the_other(forward: Emulator) -> None:
    x = floats(512)
    forward.kernels.run_shift(x, 512, 1)
    assert list(x[:129]) == list(range(129))
    forward.runtime.cuemu_set_order(ORDERS["reverse"], 0)
    x = floats(512)
    forward.kernels.run_shift(x, 512, 1)
    assert list(x[:129]) == [0] + [1] * 128


def test_threads_run_in_the_same_order_as_with_a_barrier(emulator: Emulator) -> None:
    seen = []
    for loops in (0, 1):
        counter, out = ints(1), ints(7 * 60)
        # Too few threads for a second OS thread, which would mix its own in.
        emulator.kernels.run_order(counter, out, loops)
        seen.append(list(out))
    assert seen[0] == seen[1]
    assert sorted(seen[0]) == list(range(7 * 60))


def test_three_dimensions(emulator: Emulator) -> None:
    out = ints(24 * 60)
    emulator.kernels.run_volume(out)
    assert list(out) == [i // 60 * 1000 + i % 60 for i in range(24 * 60)]


def test_two_dimensions_with_partial_blocks(emulator: Emulator) -> None:
    x, y = floats(19 * 37, range(19 * 37)), floats(19 * 37)
    emulator.kernels.run_rows(x, y, 19, 37)
    assert list(y) == [2 * value for value in x]
    assert emulator.reports() == []


def test_a_grid_stride_loop(emulator: Emulator) -> None:
    x, y = floats(1001, range(1001)), floats(1001)
    emulator.kernels.run_stride(x, y, 1001)
    assert list(y) == [2 * value for value in x]


def test_functions_that_a_kernel_calls_see_its_thread(emulator: Emulator) -> None:
    out = ints(100)
    emulator.kernels.run_called(out, 90)
    assert list(out) == [100 + i for i in range(90)] + [0] * 10


def test_a_trap_and_an_assertion_name_their_thread(emulator: Emulator, capfd: pytest.CaptureFixture[str]) -> None:
    values = ints(64, [1] * 37 + [0] + [1] * 26)
    assert emulator.kernels.run_trapping(values, 64) == LAUNCH_FAILURE
    assert "thread (5,2,0) of block (0,0,0)" in emulator.only_report("trap", "trapping")["message"]
    emulator.runtime.cuemu_clear_error()
    assert emulator.kernels.run_asserting(values, 64) == ASSERT
    report = emulator.only_report("assert", "asserting")
    assert "thread (5,0,0) of block (1,0,0)" in report["message"]
    assert report["line"] == line_of(SOURCE, "assert(", "void asserting")
    assert ": asserting: thread (5,0,0)" in capfd.readouterr().err


def test_printing(emulator: Emulator, capfd: pytest.CaptureFixture[str]) -> None:
    emulator.kernels.run_speak()
    assert sorted(capfd.readouterr().out.splitlines()) == ["thread 23", "thread 3"]


@pytest.mark.parametrize("built", [False], indirect=True, ids=["fast"])
def test_a_store_past_the_end_is_seen(forward: Emulator) -> None:
    forward.kernels.run_no_guard(64, 64)
    assert forward.reports() == []
    forward.kernels.run_no_guard(64, 67)
    assert "past the end" in forward.only_report("out-of-bounds", "no_guard")["message"]


@pytest.mark.parametrize("how", range(4))
def test_however_it_is_spelled_and_launched(emulator: Emulator, how: int) -> None:
    x, y = ints(100, range(100)), ints(100)
    emulator.kernels.run_spelled(x, y, 77, how)
    assert list(y) == [2 * i for i in range(77)] + [0] * 23


KERNEL = "__global__ void k(float* x, int n) {{ {} }}"


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        (KERNEL.format("x[threadIdx.x] = n;"), "vectors"),
        (KERNEL.format("if (threadIdx.x >= n) return; x[threadIdx.x] = fmaxf(expf(x[0]), 0.f);"), "vectors"),
        (KERNEL.format("for (int i = threadIdx.x; i < n; ++i) x[i] = 0;"), "ordered"),
        (KERNEL.format("atomicAdd(x, 1.0f);"), "ordered"),
        ("__device__ int f() { return threadIdx.x; }\n" + KERNEL.format("x[f()] = 0;"), "published"),
        ("__device__ int f() { return blockIdx.x; }\n" + KERNEL.format("x[f()] = 0;"), "vectors"),
        (KERNEL.format("assert(n > 0);"), "published"),
        ("#define I threadIdx.x\n" + KERNEL.format("x[I] = 0;"), "vectors"),
        ("struct F { __device__ float operator()(float v) const { return v; } };\n"
         "template <typename O> __global__ void k(float* x, O o) { x[threadIdx.x] = o(1.f); }", "vectors"),
        ('#include <ATen/ATen.h>\n#include <vector>\n#include "cuda_fp16.h"\n' + KERNEL.format(""), "vectors"),
        (KERNEL.format("auto f = [&](int i) { return x[i]; }; x[threadIdx.x] = f(n);"), "vectors"),
    ],
)  # fmt: skip
def test_the_loop_that_a_kernel_gets(text: str, loop: str) -> None:
    rewritten = rewrite_cuda(text)
    assert re.findall(r"CUEMU_EACH_THREAD_BEGIN\((\w+)\)", rewritten) == [loop]
    assert rewritten.count("CUEMU_EACH_THREAD_END") == 1
    assert rewritten.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        KERNEL.format("__syncthreads();"),
        KERNEL.format("x[0] = __shfl_sync(~0u, x[0], 0);"),
        KERNEL.format("__shared__ float s; s = 1;"),
        KERNEL.format("__threadfence();"),
        KERNEL.format("while (atomicCAS((int*)x, 0, 1) != 0) {}"),
        KERNEL.format("from_a_header(x);"),
        KERNEL.format("x->from_a_header();"),
        KERNEL.format("printf(__func__);"),
        KERNEL.format("auto f = [](int i) { return i + threadIdx.x; }; x[f(0)] = 0;"),
        KERNEL.format("struct S { int at() { return threadIdx.x; } }; x[S().at()] = 0;"),
        KERNEL.format("x[::threadIdx.x] = 0;"),
        "__global__ void k(const int& n) { }",
        "extern __shared__ float s[];\n" + KERNEL.format("s[0] = 1;"),
        "#define MEET __syncthreads()\n" + KERNEL.format("MEET;"),
        "#define CALL(f) f()\n" + KERNEL.format("CALL(__syncthreads);"),
        "#define I threadIdx.x\n__device__ int f() { return I; }\n" + KERNEL.format("x[f()] = 0;"),
        "__device__ void g() { __syncwarp(); }\n__device__ void f() { g(); }\n" + KERNEL.format("f();"),
        "struct V { float v; };\n__device__ V operator+(V a, V b) { __syncwarp(); return a; }\n"
        + KERNEL.format("V a, b; a = a + b;"),
        "struct F { __device__ void operator()() const { __syncthreads(); } };\n"
        "template <typename O> __global__ void k(O o) { o(); }",
        "template <typename O> __global__ void k(O o) { o(); }\n"
        "void run() { k<<<1, 2>>>([] __device__ () { __syncthreads(); }); }",
        "__device__ int f(int* a, int n) { return n ? f(a, atomicAdd(a, 1)) : 0; }\n" + KERNEL.format("f((int*)x, n);"),
        '#include "helpers.cuh"\n' + KERNEL.format("x[0] = 1;"),
        "#ifdef A\n__global__ void k(float* x) {\n#else\n__global__ void k(int* x) {\n#endif\n x[0] = 1; }",
        "__global__ void j(float* x) { }\n__global__ void k(float* x) { j(x); __syncthreads(); }",
    ],
)
def test_kernels_that_stay_as_they_are(text: str) -> None:
    assert "CUEMU_EACH_THREAD" not in rewrite_cuda(text)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86-64")
def test_element_wise_kernels_become_packed_instructions(tmp_path: Path) -> None:
    unit, assembly = tmp_path / "unit.cpp", tmp_path / "unit.s"
    unit.write_text(rewrite_cuda(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
    compiler = find_compiler()
    flags = [*COMPILE[1:], *compiler.common_flags(), *compiler.fast_flags(), "-include", "cuemu_prelude.h"]
    subprocess.run([*compiler.command, *flags, "-S", str(unit), "-o", str(assembly)], check=True)
    packed = {}
    for function in re.split(r"\n(?=\w[\w.$]*:\n)", assembly.read_text(encoding="utf-8")):
        name = function.split(":", 1)[0].strip()
        if "run_vectors" in name:
            packed[name] = set(re.findall(r"\bv(?:mul|div|sqrt)ps\b(?=.*%ymm)|\bvmaskmovps\b", function))
    for kernel, instructions in {
        "5scale": {"vmulps", "vmaskmovps"},
        "10clamp_root": {"vsqrtps", "vdivps", "vmaskmovps"},
    }.items():
        found = set[str]().union(*(seen for name, seen in packed.items() if kernel in name))
        assert instructions <= found, (kernel, packed)

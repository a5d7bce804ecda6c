"""Tests which loops of CUDA source wait for another thread, as text; test_resident_blocks.py runs some."""

from __future__ import annotations

import pytest

from harness.emulator.rewrite import rewrite_cuda


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("while (flag[i] != 1) {}", True),
        ("while (flag[i] != 1);", True),
        ("while (!flag[i]) {}", True),
        ("while (*flag != 1);", True),
        ("do {} while (flag[i] != 1);", True),
        ("while (static_cast<volatile int*>(x)[i] != 1) {}", True),
        ("{ ++i; } while (flag[i] != 1);", True),
        ("do { ++i; } while (flag[i] != 1);", True),
        ("do ++i; while (flag[i] != 1);", True),
        ("int volatile seen = 0; while (seen);", True),
        ("i = (volatile unsigned int)i; while ((int)x[0] > 5);", False),
        ("while (int seen = flag[i]) ;", False),
        ("while (flag[i] != 1) { ++i; }", False),
        ("while (x[i] != 1) {}", False),
    ],
)
def test_an_empty_loop_on_a_volatile_value_lets_others_run(loop: str, waits: bool) -> None:
    source = "__global__ void k(volatile int* flag, int* x, int i) { " + loop + " }"
    assert ("CUEMU_WAITS" in rewrite_cuda(source)) == waits


def test_a_kernel_that_waits_for_a_volatile_value_is_no_loop_over_threads() -> None:
    source = "__device__ volatile int flag;\n__global__ void k(float* x) { while (flag != 1) {} x[threadIdx.x] = 1; }"
    assert "CUEMU_EACH_THREAD_BEGIN" not in rewrite_cuda(source)
    assert "CUEMU_EACH_THREAD_BEGIN" in rewrite_cuda(source.replace("volatile ", ""))
    cast = "__global__ void k(float* x, int* flag) { while (*(volatile int*)flag != 1); x[threadIdx.x] = 1; }"
    assert "CUEMU_EACH_THREAD_BEGIN" not in rewrite_cuda(cast)

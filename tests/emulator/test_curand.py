"""Tests cuRAND's generators in device code."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .native import Emulator

SOURCE = Path(__file__).with_name("curand_numbers.cu")
#: What cuRAND 10.4.0's own headers give, compiled for the host from the same source: the generator, seed, sequence and
#: offset; bits, floats, doubles.
RESULTS = json.loads(SOURCE.with_name("curand_results.json").read_text(encoding="utf-8"))


class Numbers(ctypes.Structure):
    """What the kernel draws."""

    _fields_ = (
        ("bits", ctypes.c_uint * 26),
        ("floats", ctypes.c_float * 26),
        ("doubles", ctypes.c_double * 22),
    )


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


@pytest.mark.parametrize("case", RESULTS, ids=lambda case: "-".join(map(str, case["state"])))
def test_numbers_are_those_of_curand(emulator: Emulator, case: dict[str, Any]) -> None:
    generator, *begin = case["state"]
    drawn = Numbers()
    emulator.kernels.run_numbers(generator, *map(ctypes.c_ulonglong, begin), ctypes.byref(drawn))
    assert list(drawn.bits) == case["bits"]
    floats, doubles = list(drawn.floats), list(drawn.doubles)
    is_uniform = [*range(3), *range(13, 17)], [*range(2), *range(12, 18)]
    for found, expected, uniform, tolerance in zip(
        (floats, doubles), (case["floats"], case["doubles"]), is_uniform, (2e-6, 1e-13), strict=True
    ):
        assert [found[i] for i in uniform] == [expected[i] for i in uniform]
        # Logarithms and sines differ in last bits between mathematical libraries.
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance)
    assert emulator.reports() == []


def test_other_generators_are_refused(run_solution: Callable[..., dict[str, Any]]) -> None:
    refused = run_solution("""
import torch.utils.cpp_extension
torch.utils.cpp_extension.load_inline(name="sobol", cpp_sources="void f();", cuda_sources=r'''
#include <curand_kernel.h>
__global__ void k() { curandStateSobol32_t state; }
void f() { k<<<1, 1>>>(); }
''', functions=["f"])
""")["unsupported"]
    assert refused[0] == "cuRAND"

"""Tests what CUDA's documentation says of fast intrinsics beside their precision."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import SUCCESS, Emulator


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(Path(__file__).with_name("fast_intrinsics.cu"), bool(request.param))


def test_a_power_is_made_by_the_logarithm_of_its_base(emulator: Emulator) -> None:
    """``__powf(x, y)`` is ``exp2f(y * __log2f(x))``, and a negative base has no logarithm."""
    given = [(2.0, 3.0), (-2.0, 3.0), (-0.5, 2.0), (0.0, 2.0), (9.0, 0.5)]
    count = len(given)
    bases, exponents = ((ctypes.c_float * count)(*column) for column in zip(*given, strict=True))
    results = (ctypes.c_float * count)()
    assert emulator.kernels.run_powers(bases, exponents, results, count) == SUCCESS
    assert [result for result in results if not math.isnan(result)] == pytest.approx([8.0, 0.0, 3.0])
    assert [math.isnan(result) for result in results] == [False, True, True, False, False]

"""Tests the complex numbers of cuComplex.h against Python's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import SUCCESS, Emulator, floats

SOURCE = Path(__file__).with_name("complex_numbers.cu")


@pytest.fixture(scope="session")
def built(native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, False)


@pytest.mark.parametrize("scale", [1.0, 2.0**70])  # squares of large ones would overflow in a float
def test_complex_numbers(emulator: Emulator, scale: float) -> None:
    a, b, c = (1.5 - 2.25j) * scale, (-0.5 + 3j) * scale, 4 + 0.75j
    out, doubles = floats(14), (ctypes.c_double * 14)()
    parts = [part for one in (a, b, c) for part in (one.real, one.imag)]
    assert emulator.kernels.complex_numbers(floats(6, parts), out, doubles) == SUCCESS
    expected = [a + b, a - b, a * b, a / b, a * b + c, a.conjugate(), complex(abs(a), b.real + c.imag)]
    for found, digits in ((out, 1e-6), (doubles, 1e-15)):
        for i, one in enumerate(expected):
            if digits == 1e-6 and abs(one) > 3e38:
                continue
            assert complex(found[2 * i], found[2 * i + 1]) == pytest.approx(one, rel=digits)

"""Tests functions of CUDA that few kernels use: norms, Bessel functions, places, votes, barriers by number."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from .native import Emulator, floats, ints

SOURCE = Path(__file__).with_name("rare_functions.cu")


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def test_real_functions_are_precise(emulator: Emulator) -> None:
    values, x = (3.0, -4.0, 12.0, 84.0), 0.7
    singles, doubles = floats(8), (ctypes.c_double * 6)()
    emulator.kernels.run_real_functions(floats(5, (*values, x)), singles, doubles)
    at = torch.tensor(x, dtype=torch.float32).double()
    i0, i1 = float(torch.special.i0(at)), float(torch.special.i1(at))
    norm = 85.0
    assert list(singles)[:6] == pytest.approx([norm, 1 / norm, 1 / norm, i0, i1, -i1], rel=1e-7)
    square = float(at) ** 2 + 1e-9
    assert singles[6] <= square < singles[6] + 2**-23
    assert singles[7] == pytest.approx(math.tanh(x), rel=2**-10)
    large = float(torch.special.i0e(torch.tensor(700.0).double()))
    assert doubles[3] == pytest.approx(large * math.exp(700.0), rel=1e-11)
    assert list(doubles)[:3] == pytest.approx([norm, 1 / norm, 1 / 13.0], rel=1e-15)
    assert (doubles[4], doubles[5]) == (math.inf, 0.0)
    assert emulator.reports() == []


def test_threads_meet_at_barriers_by_number_and_tell_places_apart(ordered: Emulator) -> None:
    out, bits, sums = ints(16), ctypes.c_longlong(0), (ctypes.c_float * 8)()
    at = ctypes.addressof(sums)
    aligned = ctypes.c_void_p(at + -at % 16)
    ordered.kernels.run_threads_functions(out, ctypes.byref(bits), aligned)
    assert list(out) == [32, 1, 1, 1, 32, 0, 3, 2, 32, 1, 1, 1, 32, 32, 3, 2]
    assert bits.value == -1
    assert list((ctypes.c_float * 4).from_address(aligned.value or 0)) == [64.0, 128.0, 192.0, 256.0]
    assert ordered.reports() == []


def test_a_vote_tells_whether_all_lanes_agree(ordered: Emulator) -> None:
    out = ints(1)
    ordered.kernels.run_votes(out)
    assert out[0] == 2
    assert ordered.reports() == []

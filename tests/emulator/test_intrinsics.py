"""Tests functions on words and on the bits of 16-bit floats against what CUDA's documentation says of them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from .intrinsics import expected
from .native import SUCCESS, Emulator

SOURCE = Path(__file__).with_name("intrinsics.cu")
# The ends of signed and unsigned parts, and as 16-bit floats zeros, ones, infinities and NaN.
EDGES = (
    *(0, 1, 0x00010001, 0x7FFF7FFF, 0x80008000, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F7F7F7F, 0x80808080),
    *(0x01010101, 0xFF00FF00, 0x3C003C00, 0xBC003F80, 0x7C00FC00, 0x7E00FE00, 0x7FC0FF80, 0x7F80FF80, 0x47FF57FF),
)


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def triples(name: str) -> list[tuple[int, int, int]]:
    draw = random.Random(name)
    edges = draw.sample([(x, y, draw.choice(EDGES)) for x in EDGES for y in EDGES], 90)
    drawn = [tuple(draw.getrandbits(32) >> draw.randrange(32) for _ in range(3)) for _ in range(60)]
    # Sums of two equal words, and their neighbours.
    near = [(x, x + 1 & 0xFFFFFFFF, x) for x in EDGES]
    if name == "__fns":
        return [(x, y % 32, z % 37 - 18 & 0xFFFFFFFF) for x, y, z in (*edges, *drawn)]
    return [*edges, *drawn, *near]


def wrong_results(kernels: ctypes.CDLL) -> list[str]:
    """Calls each function, and describes the first wrong result of each."""
    kernels.intrinsic_names.restype = ctypes.c_char_p
    wrong = []
    for which, name in enumerate(kernels.intrinsic_names().decode().split()):
        given = triples(name)
        out = (ctypes.c_ulonglong * len(given))()
        words = (ctypes.c_uint * (3 * len(given)))(*(word for triple in given for word in triple))
        assert kernels.run_intrinsic(which, words, out, len(given)) == SUCCESS
        pairs = ((triple, expected(name, *triple), found) for triple, found in zip(given, out, strict=True))
        faults = [each for each in pairs if each[1] is not None and each[1] != each[2]]
        if faults:
            wrong.append(f"{name}({', '.join(map(hex, faults[0][0]))}) is {faults[0][2]:#x}, not {faults[0][1]:#x}")
    return wrong


def test_functions_on_words_do_what_cuda_says(emulator: Emulator) -> None:
    assert wrong_results(emulator.kernels) == []
    assert emulator.reports() == []

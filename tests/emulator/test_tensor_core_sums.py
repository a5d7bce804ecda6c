"""Tests that sums of tensor cores have the bits of a Hopper GPU, for every instruction and kind of numbers."""

from __future__ import annotations

import ctypes
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import Emulator
from .tensor_core_sums import BYTES, COLUMNS, INSTRUCTIONS, KINDS, RESULTS, ROWS, SUMS, digest, source, sums

#: Digests of what an H100 computed, written by ``python3 -m tests.emulator.tensor_core_sums --write``.
ON_GPU = json.loads(RESULTS.read_text(encoding="utf-8"))
TILES = 8


@pytest.fixture(scope="session")
def built(native: Callable[..., Emulator], shared: Path, made_once: Callable[..., Path]) -> Emulator:
    def write() -> Path:
        path = shared / "tensor_core_sums.cu"
        path.write_text(source(), encoding="utf-8")
        return path

    return native(made_once("tensor_core_sums", write), False)


@pytest.mark.parametrize("number", range(len(INSTRUCTIONS)), ids=[one.name for one in INSTRUCTIONS])
def test_sums_have_the_bits_of_a_gpu(emulator: Emulator, number: int) -> None:
    found = {kind: digest(sums(emulator.kernels, number, kind, TILES)) for kind in KINDS}
    assert found == ON_GPU[INSTRUCTIONS[number].name]
    assert emulator.reports() == []


def test_an_infinity_beside_small_numbers_stays_one(emulator: Emulator) -> None:
    number = next(i for i, one in enumerate(INSTRUCTIONS) if one.left == "bf16")
    infinite, small = (struct.pack("<f", value)[2:] for value in (math.inf, 2.0**-40))
    found = ctypes.create_string_buffer(4 * SUMS)
    left = infinite + small * (ROWS * BYTES // 2 - 1)
    assert emulator.kernels.run(number, 1, left, small * (COLUMNS * BYTES // 2), bytes(4 * SUMS), found) == 0
    values = struct.unpack(f"<{SUMS}f", found.raw)
    assert set(values[:COLUMNS]) == {math.inf}
    assert set(values[COLUMNS:]) == {2.0**-76}

"""Tests that sums of tensor cores have the bits of a Hopper GPU, for every instruction and kind of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import Emulator
from .tensor_core_sums import INSTRUCTIONS, KINDS, RESULTS, digest, source, sums

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

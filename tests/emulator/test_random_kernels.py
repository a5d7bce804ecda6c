"""Tests that random kernels write on the emulator what they write on a GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import ORDERS, Emulator
from .random_kernels import RESULTS, digest, results, source

#: Digests of what an H100 computed, written by ``python3 -m tests.emulator.random_kernels --write``.
ON_GPU = json.loads(RESULTS.read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def built(native: Callable[..., Emulator], shared: Path, made_once: Callable[..., Path]) -> Emulator:
    def write() -> Path:
        path = shared / "random_kernels.cu"
        path.write_text(source(0, len(ON_GPU["kernels"]), ON_GPU["statements"]), encoding="utf-8")
        return path

    return native(made_once("random_kernels", write), False)


@pytest.mark.parametrize("order", ORDERS)
def test_kernels_write_what_they_write_on_a_gpu(emulator: Emulator, order: str) -> None:
    emulator.runtime.cuemu_set_order(ORDERS[order], 1)
    found = [digest(results(emulator.kernels, number)) for number in range(len(ON_GPU["kernels"]))]
    assert found == ON_GPU["kernels"]
    assert emulator.reports() == []

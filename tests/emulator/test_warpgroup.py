"""Tests products of matrices by a warpgroup in each layout of its descriptors, with sums that are exact."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from .native import Emulator
from .warpgroup_products import CASES, Case, expected, factors, packed, source, unpacked


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "checked"])
def built(
    request: pytest.FixtureRequest,
    native: Callable[..., Emulator],
    shared: Path,
    made_once: Callable[..., Path],
) -> Emulator:
    def write() -> Path:
        path = shared / "warpgroup_products.cu"
        path.write_text(source(), encoding="utf-8")
        return path

    return native(made_once("warpgroup_products", write), request.param)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_product_has_every_sum_in_its_place(emulator: Emulator, case: Case) -> None:
    left, right = factors(case, 7)
    target = ctypes.create_string_buffer(64 * case.columns * (2 if case.sums == "f16" else 4))
    getattr(emulator.kernels, f"run_{case.name}")(packed(left, case.left), packed(right, case.right), target)
    assert emulator.reports() == []
    assert unpacked(case, target.raw) == expected(case, left, right)

"""Tests CUDA's floats of 8 bits against torch's: every code, and numbers around every rounding and range limit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from .native import SUCCESS, Emulator

SOURCE = Path(__file__).with_name("eight_bit_floats.cu")
DTYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


@pytest.fixture(scope="session", params=[False, True], ids=["fast", "check"])
def built(request: pytest.FixtureRequest, native: Callable[..., Emulator]) -> Emulator:
    return native(SOURCE, bool(request.param))


def numbers() -> torch.Tensor:
    """All bfloat16 numbers but NaN, and what lies beside and between the codes."""
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16).float()
    codes = torch.cat([torch.arange(256).to(torch.uint8).view(dtype).float() for dtype in DTYPES.values()])
    codes = codes[codes.isfinite()].sort().values
    between = (codes[1:] + codes[:-1]) / 2
    infinity = torch.tensor(float("inf"))
    beside = [torch.nextafter(one, end) for one in (codes, between) for end in (infinity, -infinity)]
    found = torch.cat([every, codes, between, *beside])
    return found[~found.isnan()].contiguous()


def codes_of(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The codes; what rounds beyond e4m3's largest number, 448, is NaN, while torch gives 448 up to 480."""
    codes = values.to(dtype).view(torch.uint8)
    is_beyond = (values.abs() > 464) & (dtype is torch.float8_e4m3fn)
    return torch.where(is_beyond, codes | 0x7F, codes)


@pytest.mark.parametrize("name", DTYPES)
def test_numbers_become_the_codes_that_torch_gives(emulator: Emulator, name: str) -> None:
    dtype, values = DTYPES[name], numbers()
    out = torch.zeros(len(values), 8, dtype=torch.uint8)
    narrow = getattr(emulator.kernels, f"narrow_{name}")
    assert narrow(ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(out.data_ptr()), len(values)) == SUCCESS
    largest = torch.finfo(dtype).max
    limited = values.clamp(-largest, largest)
    is_whole = values.abs() < 2.0**31  # others are undefined as int
    expected = [
        codes_of(values, dtype),
        codes_of(limited, dtype),
        codes_of(limited, dtype),
        codes_of(values.bfloat16().float().clamp(-largest, largest), dtype),
        codes_of(values.half().float(), dtype),
        codes_of(limited, dtype),
        codes_of(limited, dtype),
        torch.where(is_whole, codes_of(limited.trunc() + 0.0, dtype), out[:, 7]),
    ]
    for column, codes in enumerate(expected):
        wrong = (out[:, column] != codes).nonzero().flatten()
        assert not len(wrong), (column, float(values[wrong[0]]), int(out[wrong[0], column]), int(codes[wrong[0]]))
    assert emulator.reports() == []


@pytest.mark.parametrize("name", DTYPES)
def test_codes_become_the_numbers_that_torch_gives(emulator: Emulator, name: str) -> None:
    values = torch.arange(256).to(torch.uint8).view(DTYPES[name]).float()
    out, whole = torch.zeros(256, 4), torch.zeros(256, dtype=torch.int32)
    widen = getattr(emulator.kernels, f"widen_{name}")
    assert widen(ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(whole.data_ptr())) == SUCCESS
    for column in out.T:
        assert torch.equal(column.nan_to_num(-1.5), values.nan_to_num(-1.5))
    ends = values.nan_to_num(0, 2**31 - 1, -(2**31)).double().clamp(-(2**31), 2**31 - 1)
    assert torch.equal(whole, ends.to(torch.int32))
    assert emulator.reports() == []

"""Tests that float64 values beyond a dtype's range become what the dtype holds."""

from __future__ import annotations

import math

import pytest
import torch

from harness.judge.inputs.ranges import within


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_limits_become_the_dtype_s_and_larger_values_infinite(dtype: torch.dtype) -> None:
    limit, own = torch.finfo(dtype).max, torch.finfo(torch.float64).max
    exact = torch.tensor([1.5, limit, -own, own, 1e300, -1e300, math.inf, math.nan], dtype=torch.float64)
    expected = torch.tensor([1.5, limit, -limit, limit, math.inf, -math.inf, math.inf, math.nan], dtype=torch.float64)
    assert torch.equal(within(exact, dtype).nan_to_num(7.0), expected.nan_to_num(7.0))


def test_what_is_in_range_stays_as_it_is() -> None:
    exact = torch.randn(4, dtype=torch.float64)
    assert within(exact, torch.float32) is exact
    assert within(exact * 1e300, torch.float64).abs().max() > 1e299

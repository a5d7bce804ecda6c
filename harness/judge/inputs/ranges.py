"""Brings float64 values to the range of the dtype in which a problem returns them."""

from __future__ import annotations

import math

import torch


def within(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a float64 output with the values that a dtype has where it overflows.

    Float64's own limits (``torch.finfo(y.dtype).min`` in a mask) become the dtype's limits, and
    other values beyond these become infinite.
    """
    if not (dtype.is_floating_point and exact.is_floating_point() and exact.numel()) or dtype is torch.float64:
        return exact
    limit, own = torch.finfo(dtype).max, torch.finfo(torch.float64).max
    values = exact.detach()
    if all(float(end.abs()) <= limit for end in values.aminmax()):
        return exact
    sign = values.sign()
    exact = torch.where(values.abs() == own, sign * limit, exact)
    return torch.where((values.abs() > limit) & (values.abs() < own), sign * math.inf, exact)

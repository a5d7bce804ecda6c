"""Group norm in Triton, written in the usual way: a program a group, which walks over it twice.

What our kernels are compared with (``benchmarks.group_norm_rivals``), and no part of the harness.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCKS = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((2048, 8), (4096, 8), (4096, 16), (8192, 16))
]


@triton.autotune(BLOCKS, key=["length"])
@triton.jit
def _forward(
    x_at, y_at, weight_at, bias_at, mean_at, rstd_at, groups, channels, spatial, length, eps, BLOCK: tl.constexpr
):
    group = tl.program_id(0).to(tl.int64)
    x_at += group * length
    y_at += group * length
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        x = tl.load(x_at + start + lanes, mask=start + lanes < length, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, 0) / length
    rstd = 1.0 / tl.sqrt(tl.sum(squares, 0) / length - mean * mean + eps)
    tl.store(mean_at + group, mean)
    tl.store(rstd_at + group, rstd)
    first = group % groups * channels
    for start in range(0, length, BLOCK):
        place = start + lanes
        held = place < length
        channel = first + place // spatial
        weight = tl.load(weight_at + channel, mask=held, other=0.0)
        bias = tl.load(bias_at + channel, mask=held, other=0.0)
        x = tl.load(x_at + place, mask=held, other=0.0).to(tl.float32)
        tl.store(y_at + place, ((x - mean) * (rstd * weight) + bias).to(y_at.dtype.element_ty), mask=held)


@triton.autotune(BLOCKS, key=["spatial"])
@triton.jit
def _row_sums(dy_at, x_at, mean_at, rstd_at, sums_at, channels, spatial, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    group = row // channels
    mean = tl.load(mean_at + group)
    rstd = tl.load(rstd_at + group)
    lanes = tl.arange(0, BLOCK)
    of_dy = tl.zeros([BLOCK], tl.float32)
    of_dy_xhat = tl.zeros([BLOCK], tl.float32)
    for start in range(0, spatial, BLOCK):
        held = start + lanes < spatial
        dy = tl.load(dy_at + row * spatial + start + lanes, mask=held, other=0.0).to(tl.float32)
        x = tl.load(x_at + row * spatial + start + lanes, mask=held, other=0.0).to(tl.float32)
        of_dy += dy
        of_dy_xhat += dy * ((x - mean) * rstd)
    tl.store(sums_at + 2 * row, tl.sum(of_dy, 0))
    tl.store(sums_at + 2 * row + 1, tl.sum(of_dy_xhat, 0))


@triton.autotune(BLOCKS, key=["spatial"])
@triton.jit
def _input_gradient(
    dy_at, x_at, dx_at, weight_at, mean_at, rstd_at, means_at, groups, channels, spatial, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    group = row // channels
    mean = tl.load(mean_at + group)
    rstd = tl.load(rstd_at + group)
    mean_dy = tl.load(means_at + 2 * group)
    mean_dy_xhat = tl.load(means_at + 2 * group + 1)
    weight = tl.load(weight_at + row % (groups * channels))
    lanes = tl.arange(0, BLOCK)
    for start in range(0, spatial, BLOCK):
        held = start + lanes < spatial
        dy = tl.load(dy_at + row * spatial + start + lanes, mask=held, other=0.0).to(tl.float32)
        x = tl.load(x_at + row * spatial + start + lanes, mask=held, other=0.0).to(tl.float32)
        xhat = (x - mean) * rstd
        dx = rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat)
        tl.store(dx_at + row * spatial + start + lanes, dx.to(dx_at.dtype.element_ty), mask=held)


class _GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> Any:
        y = torch.empty_like(x)
        batch, channels = x.shape[0], x.shape[1] // groups
        spatial = x[0, 0].numel()
        mean, rstd = (torch.empty(batch, groups, device=x.device) for _ in range(2))
        sizes = groups, channels, spatial, channels * spatial
        _forward[(batch * groups,)](x, y, weight, bias, mean, rstd, *sizes, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.sizes = batch, groups, channels, spatial
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, weight, mean, rstd = ctx.saved_tensors
        batch, groups, channels, spatial = ctx.sizes
        dy, dx = dy.contiguous(), torch.empty_like(x)
        sums = torch.empty(batch, groups, channels, 2, device=x.device)
        rows = batch * groups * channels
        _row_sums[(rows,)](dy, x, mean, rstd, sums, channels, spatial)
        means = (sums * weight.view(groups, channels, 1)).sum(2) / (channels * spatial)
        _input_gradient[(rows,)](dy, x, dx, weight, mean, rstd, means, groups, channels, spatial)
        affine = sums.sum(0).view(groups * channels, 2)
        return dx, affine[:, 1].to(weight.dtype), affine[:, 0].to(weight.dtype), None, None


class GroupNorm(torch.nn.GroupNorm):
    """As ``torch.nn.GroupNorm``, on a GPU; the input is (batch, channels, *spatial), contiguous."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x."""
        y: torch.Tensor = _GroupNorm.apply(x, self.weight, self.bias, self.num_groups, self.eps)  # type: ignore[no-untyped-call]
        return y

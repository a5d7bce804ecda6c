"""Softmax over the last dimension."""

import torch
import torch.nn as nn

batch_size = 48
dim = 256

CASES = {
    "whole_warps": {},
    "odd": {"batch_size": 29, "dim": 131},
    "shorter_than_a_warp": {"batch_size": 7, "dim": 5},
}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []

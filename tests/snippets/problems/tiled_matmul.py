"""One product of two matrices."""

import torch
import torch.nn as nn

M = 96
K = 128
N = 64

CASES = {
    "whole_tiles": {},
    "odd": {"M": 37, "K": 53, "N": 19},
    "one_row": {"M": 1, "K": 100, "N": 7},
}


class Model(nn.Module):
    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []

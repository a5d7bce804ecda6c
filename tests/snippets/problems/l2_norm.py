"""The Euclidean norm of a whole tensor."""

import torch
import torch.nn as nn

shape = (64, 1024)

CASES = {
    "many_blocks": {},
    "odd": {"shape": (7, 11, 131)},
    "one_block": {"shape": (101,)},
}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x)


def get_inputs():
    return [torch.randn(shape)]


def get_init_inputs():
    return []

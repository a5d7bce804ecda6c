"""SiLU times a constant."""

import torch
import torch.nn as nn

shape = (16, 1024)
scale = 1.5

CASES = {
    "whole_vectors": {},
    # 1221 elements: three blocks of float4 and a tail of one.
    "odd": {"shape": (37, 33), "scale": -0.75},
    "tail_only": {"shape": (3,)},
}


class Model(nn.Module):
    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(shape)]


def get_init_inputs():
    return [scale]

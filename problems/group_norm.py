"""Group normalisation over (batch, features, *spatial), as a KernelBench problem."""

import torch
import torch.nn as nn

batch_size = 112
features = 64
num_groups = 8
dim1 = 512
dim2 = 512

shape = (batch_size, features, dim1, dim2)
scale = 1.0  # width of the uniform draw; a narrow one makes an ignored eps visible

# Anything may come into a normalisation.
DRAWS = ["shifted", "scaled", "small_variance", "heavy_tailed"]

CASES = {
    "full": {},
    "cpu": {"batch_size": 4, "dim1": 64, "dim2": 64},
    # No extent divides 4, 32 or a block.
    "odd": {"batch_size": 3, "features": 15, "num_groups": 5, "dim1": 13, "dim2": 7},
    "sequence_3d": {"features": 24, "num_groups": 6, "shape": (5, 24, 37)},
    "volume_5d": {"features": 12, "num_groups": 3, "shape": (2, 12, 5, 6, 7)},
    "instance": {"batch_size": 3, "features": 10, "num_groups": 10, "dim1": 11, "dim2": 9},
    "one_group": {"batch_size": 5, "features": 7, "num_groups": 1, "dim1": 17, "dim2": 3},
    "flat_2d": {"features": 36, "num_groups": 4, "shape": (33, 36)},
    "small_variance": {
        "batch_size": 4,
        "features": 16,
        "num_groups": 4,
        "dim1": 15,
        "dim2": 15,
        "scale": 0.1,
    },
}


class Model(nn.Module):
    """One ``nn.GroupNorm``; input and output (batch, features, *spatial), float32."""

    def __init__(self, num_features: int, num_groups: int):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gn(x)


def get_inputs():
    return [torch.rand(shape).mul_(scale)]


def get_init_inputs():
    return [features, num_groups]

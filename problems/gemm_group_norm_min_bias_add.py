"""A linear layer, group normalisation over the features, the least feature of each sample, and a bias that broadcasts.

The minimum leaves (batch, 1). A bias of shape (1, out_features, 1, 1) meets it as broadcasting has it: the result is
(1, out_features, batch, 1), every sample's minimum plus every element of the bias.
"""

import torch
import torch.nn as nn

batch_size = 1024
in_features = 8192
out_features = 8192
num_groups = 512
bias_shape = (1, out_features, 1, 1)

# Shifted inputs, or small ones beside the layer's bias, give every sample the same least feature.
DRAWS = ["scaled", "heavy_tailed"]

CASES = {
    "full": {},
    "cpu": {"batch_size": 64, "in_features": 256, "out_features": 512, "num_groups": 32},
    # No extent divides 4, 32 or a tile.
    "odd": {"batch_size": 5, "in_features": 13, "out_features": 21, "num_groups": 7},
    # A group longer than a warp holds, of odd length, so that rows begin at odd addresses.
    "one_group": {"batch_size": 7, "in_features": 35, "out_features": 301, "num_groups": 1},
    "long_groups": {"batch_size": 18, "in_features": 12, "out_features": 640, "num_groups": 2},
    # Longer than a tile of the product, and not a multiple of one.
    "straddling_groups": {"batch_size": 9, "in_features": 20, "out_features": 480, "num_groups": 3},
    # Two channels a group, the fewest that have a gradient.
    "pairs": {"batch_size": 34, "in_features": 20, "out_features": 36, "num_groups": 18},
    "one_sample": {"batch_size": 1, "in_features": 50, "out_features": 48, "num_groups": 4},
    "deep": {"batch_size": 3, "in_features": 1031, "out_features": 20, "num_groups": 2},
    "one_feature_in": {"batch_size": 9, "in_features": 1, "out_features": 44, "num_groups": 4},
    "bias_of_one": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (1,)},
    "bias_as_row": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (1, 40)},
    "bias_stack": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (40, 1, 1)},
    "bias_a_sample": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (6, 1)},
    "bias_for_all": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (2, 6, 7)},
}


class Model(nn.Module):
    """Input (batch, in_features), float32; the output has the shape to which (batch, 1) and the bias broadcast."""

    def __init__(self, in_features: int, out_features: int, num_groups: int, bias_shape: tuple[int, ...]):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gemm(x)
        x = self.group_norm(x)
        x = torch.min(x, dim=1, keepdim=True)[0]
        return x + self.bias


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, num_groups, bias_shape]

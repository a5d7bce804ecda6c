"""A linear layer, a bias, Hardtanh, Mish and group normalisation over the features, as a KernelBench problem."""

import torch
import torch.nn as nn

batch_size = 1024
in_features = 8192
out_features = 8192
bias_shape = (out_features,)
num_groups = 256

# Of larger inputs Hardtanh would leave nothing but its edges.
DRAWS = ["small_variance"]

CASES = {
    "full": {},
    "cpu": {"batch_size": 64, "in_features": 256, "out_features": 512, "num_groups": 16},
    # No extent divides 4, 32 or a tile. Groups of three would be too short: now and then Hardtanh makes such a group
    # constant, so that its variance is 0 and y is the last bit of the mean times 1 / sqrt(eps).
    "odd": {"batch_size": 5, "in_features": 13, "out_features": 35, "num_groups": 7},
    # A group longer than a warp holds, of odd length, so that rows begin at odd addresses.
    "one_group": {"batch_size": 7, "in_features": 35, "out_features": 301, "num_groups": 1},
    "long_groups": {"batch_size": 18, "in_features": 12, "out_features": 640, "num_groups": 2},
    # Two channels a group, the fewest that have a gradient.
    "pairs": {"batch_size": 34, "in_features": 20, "out_features": 36, "num_groups": 18},
    "one_sample": {"batch_size": 1, "in_features": 50, "out_features": 48, "num_groups": 4},
    "deep": {"batch_size": 3, "in_features": 1031, "out_features": 20, "num_groups": 2},
    "one_feature_in": {"batch_size": 9, "in_features": 1, "out_features": 44, "num_groups": 4},
    "bias_as_row": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (1, 40)},
    "bias_of_one": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (1,)},
    "bias_a_sample": {"batch_size": 6, "in_features": 24, "out_features": 40, "num_groups": 5, "bias_shape": (6, 1)},
}


class Model(nn.Module):
    """Input (batch, in_features), output (batch, out_features), float32; the bias broadcasts to the output."""

    def __init__(self, in_features: int, out_features: int, bias_shape: tuple[int, ...], num_groups: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.hardtanh = nn.Hardtanh()
        self.mish = nn.Mish()
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.gemm(x)
        x = x + self.bias
        x = self.hardtanh(x)
        x = self.mish(x)
        return self.groupnorm(x)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, bias_shape, num_groups]

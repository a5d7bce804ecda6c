"""A transposed convolution, GELU and group normalisation over the channels, as a KernelBench problem."""

import torch
import torch.nn as nn

batch_size = 128
in_channels = 64
out_channels = 64
height = 256
width = 256
kernel_size = 3
stride = 1
groups = 8  # the constructor takes it and leaves it unused: the convolution has one group
num_groups = 8

# cuDNN rounds the operands of a float32 convolution to TF32 unless it is told not to.
PRECISION = "10-bit"

DRAWS = ["shifted", "scaled", "small_variance", "heavy_tailed"]

CASES = {
    "full": {},
    "cpu": {"batch_size": 2, "in_channels": 12, "out_channels": 16, "height": 30, "width": 70, "num_groups": 4},
    # No extent divides 4, 32 or a tile.
    "odd": {"batch_size": 3, "in_channels": 5, "out_channels": 21, "height": 11, "width": 7, "num_groups": 7},
    "stride_2": {
        "batch_size": 2,
        "in_channels": 6,
        "out_channels": 12,
        "height": 9,
        "width": 14,
        "stride": 2,
        "num_groups": 4,
    },
    "kernel_1": {"batch_size": 3, "in_channels": 35, "out_channels": 8, "height": 10, "width": 12, "kernel_size": 1},
    # Between the taps of a kernel that is smaller than the stride there is nothing but the bias.
    "kernel_1_stride_3": {
        "batch_size": 2,
        "in_channels": 7,
        "out_channels": 10,
        "height": 5,
        "width": 9,
        "kernel_size": 1,
        "stride": 3,
        "num_groups": 5,
    },
    # Every input pixel has outputs of its own.
    "kernel_2_stride_2": {
        "batch_size": 2,
        "in_channels": 9,
        "out_channels": 6,
        "height": 12,
        "width": 8,
        "kernel_size": 2,
        "stride": 2,
        "num_groups": 2,
    },
    "kernel_5": {
        "batch_size": 2,
        "in_channels": 3,
        "out_channels": 10,
        "height": 8,
        "width": 19,
        "kernel_size": 5,
        "num_groups": 2,
    },
    "kernel_5_stride_3": {
        "batch_size": 2,
        "in_channels": 4,
        "out_channels": 9,
        "height": 7,
        "width": 5,
        "kernel_size": 5,
        "stride": 3,
        "num_groups": 3,
    },
    "one_group": {"batch_size": 2, "in_channels": 4, "out_channels": 11, "height": 13, "width": 6, "num_groups": 1},
    "instance": {"batch_size": 2, "in_channels": 8, "out_channels": 9, "height": 6, "width": 17, "num_groups": 9},
    "one_sample": {"batch_size": 1, "in_channels": 33, "out_channels": 40, "height": 16, "width": 9},
}


class Model(nn.Module):
    """Input (batch, in_channels, height, width), float32; the output as large as the transposed convolution's."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int, groups: int, num_groups: int
    ):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)
        self.group_norm = nn.GroupNorm(num_groups=num_groups, num_channels=out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv_transpose(x)
        x = torch.nn.functional.gelu(x)
        return self.group_norm(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, groups, num_groups]

"""Group normalisation of half-precision activations by float32 parameters, as diffusion models have it."""

import torch
import torch.nn as nn

batch_size = 112
features = 64
num_groups = 8
dim1 = 512
dim2 = 512
dtype = "float16"

shape = (batch_size, features, dim1, dim2)

# Anything may come into a normalisation.
DRAWS = ["shifted", "scaled", "small_variance", "heavy_tailed"]

_SMALL = {"batch_size": 4, "dim1": 64, "dim2": 64}
# No extent divides 4, 32 or a block.
_ODD = {"batch_size": 3, "features": 15, "num_groups": 5, "dim1": 13, "dim2": 7}

CASES = {
    "full": {},
    "full_bfloat16": {"dtype": "bfloat16"},
    "cpu": _SMALL,
    "cpu_bfloat16": {**_SMALL, "dtype": "bfloat16"},
    "odd": _ODD,
    "odd_bfloat16": {**_ODD, "dtype": "bfloat16"},
    "flat_2d": {"features": 20, "num_groups": 4, "shape": (17, 20)},
}


class Model(nn.Module):
    """``nn.GroupNorm`` in the dtype of its parameters; input and output (batch, features, *spatial), half precision."""

    def __init__(self, num_features: int, num_groups: int):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gn(x.to(self.gn.weight.dtype)).to(x.dtype)


def get_inputs():
    return [torch.rand(shape).to(getattr(torch, dtype))]


def get_init_inputs():
    return [features, num_groups]

import torch

n = 1000
CASES = {"full": {}}


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []

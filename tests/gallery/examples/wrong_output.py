import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * x + 0.01

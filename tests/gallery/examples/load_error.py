import torch


class Model(torch.nn.Module):  # its name must be ModelNew
    def forward(self, x):
        return x * x

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scratch = torch.empty(1 << 40)  # 4 TiB
        return x * x + 0 * scratch[0]

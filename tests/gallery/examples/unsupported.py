import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cub/cub.cuh>

__global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = cub::ThreadLoad<cub::LOAD_CS>(x + i) * x[i];
}

torch::Tensor forward(torch::Tensor x) {
  auto y = torch::empty_like(x);
  square<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
module = load_inline("unsupported", "torch::Tensor forward(torch::Tensor x);", CUDA, functions=["forward"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.forward(x.contiguous())

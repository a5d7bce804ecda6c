import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void multiply(const float* a, const float* b, float factor, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * a[i] * b[i];
}

torch::Tensor product(torch::Tensor a, torch::Tensor b, double factor) {
  auto y = torch::empty_like(a);
  int n = a.numel();
  multiply<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), factor, y.data_ptr<float>(), n);
  return y;
}
"""
CPP = "torch::Tensor product(torch::Tensor a, torch::Tensor b, double factor);"
module = load_inline("passed", CPP, CUDA, functions=["product"])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        return module.product(x, x, 1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return module.product(x, grad_output.contiguous(), 2)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Square.apply(x)

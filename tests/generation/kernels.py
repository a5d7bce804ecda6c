"""A small problem for runs, with a right kernel and wrong ones."""

from __future__ import annotations

PROBLEM = """\
import torch
import torch.nn as nn

n = 8
CASES = {"small": {}, "secret_size": {"n": 71}}


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
RIGHT = '''\
import ctypes

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
__global__ void tanh_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]);
}
__global__ void tanh_gradient(const float* dy, const float* y, float* dx, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}
extern "C" void forward(const float* x, float* y, int n) { tanh_kernel<<<(n + 31) / 32, 32>>>(x, y, n); }
extern "C" void backward(const float* dy, const float* y, float* dx, int n) {
  tanh_gradient<<<(n + 31) / 32, 32>>>(dy, y, dx, n);
}
"""
library = ctypes.CDLL(
    load_inline(name="tanh", cpp_sources="", cuda_sources=SOURCE, is_python_module=False, no_implicit_headers=True)
)


def at(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


class Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        library.forward(at(x), at(y), x.numel())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(dy)
        library.backward(at(dy), at(y), at(dx), dy.numel())
        return dx


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Tanh.apply(x)
'''
#: Does not build.
BROKEN = RIGHT.replace("threadIdx.x;", "threadIdx.nothing;", 1)
#: The forward is right.
WRONG_GRADIENT = RIGHT.replace("y[i] * y[i]", "y[i]")
#: Right for one block alone.
OVERFITTED = RIGHT.replace("<<<(n + 31) / 32, 32>>>", "<<<1, 32>>>")
#: Reads beyond the end.
OUT_OF_BOUNDS = RIGHT.replace("if (i < n) y[i]", "if (i <= n) y[i]")
#: Torch's own work, which needs no build.
TORCH = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.tanh()\n"
WRONG = TORCH.replace("x.tanh()", "x.sinh()")

"""An honest, plain group norm; test_faults.py plants one fault at a time in it."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cassert>
#include <cuda_runtime.h>

__device__ float block_sum(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
        __syncthreads();  // after each step
    }
    float total = scratch[0];
    __syncthreads();
    return total;
}

// One block per (sample, group) of `count` consecutive elements; `spatial` elements per channel.
__global__ void forward_kernel(const float* x, const float* weight, const float* bias, float* y, float* mean,
                               float* rstd, int channels, int groups, int spatial, int count, float eps) {
    __shared__ float scratch[128];
    const float* row = x + (long long)blockIdx.x * count;
    float* out = y + (long long)blockIdx.x * count;
    int group = blockIdx.x % groups;
    float sum = 0.f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += row[i];
    float m = block_sum(sum, scratch) / count;
    float squares = 0.f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) squares += (row[i] - m) * (row[i] - m);
    float r = rsqrtf(block_sum(squares, scratch) / count + eps);
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        int channel = group * (channels / groups) + i / spatial;
        out[i] = (row[i] - m) * r * weight[channel] + bias[channel];
    }
    if (threadIdx.x == 0) { mean[blockIdx.x] = m; rstd[blockIdx.x] = r; }
}

__global__ void input_gradient_kernel(const float* dy, const float* x, const float* weight, const float* mean,
                                      const float* rstd, float* dx, int channels, int groups, int spatial, int count) {
    __shared__ float scratch[128];
    long long start = (long long)blockIdx.x * count;
    int first = (blockIdx.x % groups) * (channels / groups);
    float m = mean[blockIdx.x], r = rstd[blockIdx.x], a = 0.f, b = 0.f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        float g = dy[start + i] * weight[first + i / spatial];
        a += g;
        b += g * (x[start + i] - m) * r;
    }
    a = block_sum(a, scratch) / count;
    b = block_sum(b, scratch) / count;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        float g = dy[start + i] * weight[first + i / spatial];
        dx[start + i] = r * (g - a - (x[start + i] - m) * r * b);
    }
}

// One block per channel, summed over samples and positions.
__global__ void affine_gradient_kernel(const float* dy, const float* x, const float* mean, const float* rstd,
                                       float* dweight, float* dbias, int samples, int channels, int groups,
                                       int spatial) {
    __shared__ float scratch[128];
    int channel = blockIdx.x, group = channel / (channels / groups);
    float dw = 0.f, db = 0.f;
    for (int n = 0; n < samples; n++)
        for (int i = threadIdx.x; i < spatial; i += blockDim.x) {
            long long at = ((long long)n * channels + channel) * spatial + i;
            dw += dy[at] * (x[at] - mean[n * groups + group]) * rstd[n * groups + group];
            db += dy[at];
        }
    dw = block_sum(dw, scratch);
    db = block_sum(db, scratch);
    if (threadIdx.x == 0) { dweight[channel] = dw; dbias[channel] = db; }
}

extern "C" const char* words(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

extern "C" int forward(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd,
                       int samples, int channels, int groups, int spatial, float eps) {
    int count = channels / groups * spatial;
    forward_kernel<<<samples * groups, 128>>>(x, weight, bias, y, mean, rstd, channels, groups, spatial, count, eps);
    return cudaGetLastError();
}

extern "C" int backward(const float* dy, const float* x, const float* weight, const float* mean, const float* rstd,
                        float* dx, float* dweight, float* dbias, int samples, int channels, int groups, int spatial) {
    int count = channels / groups * spatial;
    input_gradient_kernel<<<samples * groups, 128>>>(dy, x, weight, mean, rstd, dx, channels, groups, spatial, count);
    affine_gradient_kernel<<<channels, 128>>>(dy, x, mean, rstd, dweight, dbias, samples, channels, groups, spatial);
    return cudaGetLastError();
}
"""

library = ctypes.CDLL(
    load_inline(
        name="plain_group_norm",
        cpp_sources="",
        cuda_sources=CUDA,
        no_implicit_headers=True,
        is_python_module=False,
    )
)


library.words.restype = ctypes.c_char_p


def check(code):
    if code != 0:
        raise RuntimeError(f"CUDA error: {library.words(code).decode()}")


def pointers(*tensors):
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


class GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        x = x.contiguous()
        samples, channels = x.shape[:2]
        y = torch.empty_like(x)
        mean = torch.empty(samples * groups, device=x.device)
        rstd = torch.empty_like(mean)
        sizes = [samples, channels, groups, x[0, 0].numel()]
        check(library.forward(*pointers(x, weight, bias, y, mean, rstd), *sizes, ctypes.c_float(eps)))
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.sizes = sizes
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        check(library.backward(*pointers(dy, x, weight, mean, rstd, dx, dweight, dbias), *ctx.sizes))
        return dx, dweight, dbias, None, None


class ModelNew(nn.Module):
    def __init__(self, num_features, num_groups):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups, num_features)

    def forward(self, x):
        return GroupNorm.apply(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps)

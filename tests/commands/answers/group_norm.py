"""Group norm in the style of language models: one kernel for the sums, one to apply them, its own parameters."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__device__ float block_sum(float value, float* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
        __syncthreads();
    }
    float total = shared[0];
    __syncthreads();
    return total;
}

// One block per (group, sample). The squares are summed around the mean: E[x^2] - E[x]^2 loses digits in float32.
__global__ void compute_group_sums(const float* input, float* means, float* rstds, int G, int elements_per_group,
                                   float eps) {
    extern __shared__ float shared[];
    const float* x = input + (long long)(blockIdx.y * G + blockIdx.x) * elements_per_group;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < elements_per_group; i += blockDim.x) sum += x[i];
    float mean = block_sum(sum, shared) / elements_per_group;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < elements_per_group; i += blockDim.x) squares += (x[i] - mean) * (x[i] - mean);
    float var = block_sum(squares, shared) / elements_per_group;
    if (threadIdx.x == 0) {
        means[blockIdx.y * G + blockIdx.x] = mean;
        rstds[blockIdx.y * G + blockIdx.x] = rsqrtf(var + eps);
    }
}

__global__ void apply_group_norm(const float* input, const float* means, const float* rstds, const float* gamma,
                                 const float* beta, float* output, int C, int channels_per_group, int spatial,
                                 long long total) {
    long long idx = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= total) return;
    int c = idx / spatial % C;
    long long group = idx / ((long long)spatial * channels_per_group);
    output[idx] = (input[idx] - means[group]) * rstds[group] * gamma[c] + beta[c];
}

std::vector<torch::Tensor> group_norm_forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int64_t groups,
                                              double eps) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "x must be a contiguous CUDA tensor");
    const int N = x.size(0), C = x.size(1), spatial = x.numel() / (x.size(0) * x.size(1));
    auto output = torch::empty_like(x);
    auto means = torch::empty({N, groups}, x.options());
    auto rstds = torch::empty({N, groups}, x.options());
    const int threads = 256;
    compute_group_sums<<<dim3(groups, N), threads, threads * sizeof(float)>>>(
        x.data_ptr<float>(), means.data_ptr<float>(), rstds.data_ptr<float>(), groups, C / groups * spatial, eps);
    apply_group_norm<<<(x.numel() + threads - 1) / threads, threads>>>(
        x.data_ptr<float>(), means.data_ptr<float>(), rstds.data_ptr<float>(), gamma.data_ptr<float>(),
        beta.data_ptr<float>(), output.data_ptr<float>(), C, C / groups, spatial, x.numel());
    return {output, means, rstds};
}
"""

cpp_source = """
std::vector<torch::Tensor> group_norm_forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, int64_t groups,
                                              double eps);
"""

module = load_inline(
    name="group_norm_cuda",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["group_norm_forward"],
)


class GroupNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, num_groups, eps):
        x = x.contiguous()
        output, means, rstds = module.group_norm_forward(x, gamma, beta, num_groups, eps)
        ctx.save_for_backward(x, gamma, means, rstds)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        x, gamma, means, rstds = ctx.saved_tensors
        N, C = x.shape[:2]
        groups = means.shape[1]
        xhat = ((x.reshape(N, groups, -1) - means[..., None]) * rstds[..., None]).reshape(N, C, -1)
        grad = grad_output.reshape(N, C, -1)
        grad_gamma = (grad * xhat).sum((0, 2))
        grad_beta = grad.sum((0, 2))
        scaled = (grad * gamma[:, None]).reshape(N, groups, -1)
        xhat = xhat.reshape(N, groups, -1)
        centred = scaled - scaled.mean(2, keepdim=True) - xhat * (scaled * xhat).mean(2, keepdim=True)
        return (centred * rstds[..., None]).reshape(x.shape), grad_gamma, grad_beta, None, None


class ModelNew(nn.Module):
    def __init__(self, num_features: int, num_groups: int):
        super().__init__()
        self.num_groups = num_groups
        self.gamma = nn.Parameter(torch.ones(num_features))
        self.beta = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return GroupNormFunction.apply(x, self.gamma, self.beta, self.num_groups, 1e-5)


# As in the original code
batch_size = 112
features = 64
num_groups = 8
dim1 = 512
dim2 = 512


def get_inputs():
    x = torch.rand(batch_size, features, dim1, dim2).cuda()
    return [x]


def get_init_inputs():
    return [features, num_groups]

# Rendered from templates/group_norm_plain: change that, not this file, and render again.
# template: group_norm_plain
# parameters: {"element":"float","threads":512}
# digest: sha256:ad0613a1e96182cd7cd047a346ef0bdc0b7b145664845636e17fafc3dafdf3fd
"""Group normalisation, forward and backward, in four plain CUDA kernels.

x, y (batch, channels, *spatial), float32; weight, bias (channels,), float32. A group is channels / groups
neighbouring channels of one sample. With xhat = (x - mean) * rstd and rstd = 1 / sqrt(variance + eps) of x's group:

    y       = xhat * weight + bias
    dweight = sum over batch and spatial of dy * xhat
    dbias   = sum over batch and spatial of dy
    dx      = rstd * (dy * weight - m1 - xhat * m2),  m1 and m2 the group's means of dy * weight and dy * weight * xhat

Replaces: ``torch.nn.GroupNorm`` and its backward. Every sum has a fixed order: the same input gives the same bits.
"""

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups,
                                   double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight,
                                    torch::Tensor statistics);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

constexpr int kThreads = 512;  // of every block

// x as (samples, channels, spatial). A group, and a row (one channel of one sample), lie in one piece.
struct Shape {
  int64_t samples, channels, spatial, groups, group_channels;  // the last of one group
};

// The sum over a block of kThreads, in every thread.
__device__ double block_sum(double value) {
  __shared__ double warp_sums[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  __syncthreads();  // what an earlier call left here has been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0.0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  return sum;
}

// One block a group: mean and rstd in statistics (samples, groups), then y.
__global__ void normalise_groups(const float* __restrict__ x, const float* __restrict__ weight,
                                 const float* __restrict__ bias, Shape shape, double eps, float* __restrict__ y,
                                 float2* __restrict__ statistics) {
  const int64_t group = blockIdx.x;
  const int64_t length = shape.group_channels * shape.spatial;
  x += group * length;
  y += group * length;
  // Distances are from one of the group's own values, whose square distance from the mean is at most length * variance:
  // the subtraction below leaves the variance its digits, wherever the mean lies.
  const double pivot = static_cast<float>(x[0]);
  double sum = 0.0;
  double squares = 0.0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < length; i += kThreads) {
    const double distance = static_cast<float>(x[i]) - pivot;
    sum += distance;
    squares += distance * distance;
  }
  const double shift = block_sum(sum) / length;
  const double variance = block_sum(squares) / length - shift * shift;
  const float mean = static_cast<float>(pivot + shift);
  const float rstd = static_cast<float>(1.0 / sqrt(variance + eps));
  if (threadIdx.x == 0) statistics[group] = {mean, rstd};
  for (int64_t member = 0; member < shape.group_channels; ++member) {
    const int64_t channel = group % shape.groups * shape.group_channels + member;
    const float scale = rstd * weight[channel];
    const float offset = bias[channel];
#pragma unroll 4
    for (int64_t i = member * shape.spatial + threadIdx.x; i < (member + 1) * shape.spatial; i += kThreads) {
      y[i] = (static_cast<float>(x[i]) - mean) * scale + offset;
    }
  }
}

// One block a row: row_sums (samples, channels) of dy and of dy * xhat.
__global__ void sum_rows(const float* __restrict__ dy, const float* __restrict__ x,
                         const float2* __restrict__ statistics, Shape shape, double2* __restrict__ row_sums) {
  const int64_t row = blockIdx.x;
  const auto [mean, rstd] = statistics[row / shape.group_channels];
  double sum = 0.0;
  double sum_xhat = 0.0;
#pragma unroll 4
  for (int64_t i = row * shape.spatial + threadIdx.x; i < (row + 1) * shape.spatial; i += kThreads) {
    const float cotangent = dy[i];
    sum += cotangent;
    sum_xhat += cotangent * ((static_cast<float>(x[i]) - mean) * rstd);
  }
  sum = block_sum(sum);
  sum_xhat = block_sum(sum_xhat);
  if (threadIdx.x == 0) row_sums[row] = {sum, sum_xhat};
}

// One block a row: dx, with m1 and m2 from the sums of the group's rows.
__global__ void input_gradient(const float* __restrict__ dy, const float* __restrict__ x,
                               const float* __restrict__ weight, const float2* __restrict__ statistics,
                               const double2* __restrict__ row_sums, Shape shape, float* __restrict__ dx) {
  const int64_t row = blockIdx.x;
  const int64_t group = row / shape.group_channels;
  double sum = 0.0;
  double sum_xhat = 0.0;
  for (int64_t of = group * shape.group_channels; of < (group + 1) * shape.group_channels; ++of) {
    sum += weight[of % shape.channels] * row_sums[of].x;
    sum_xhat += weight[of % shape.channels] * row_sums[of].y;
  }
  const double length = shape.group_channels * shape.spatial;
  const float m1 = static_cast<float>(sum / length);
  const float m2 = static_cast<float>(sum_xhat / length);
  const float row_weight = weight[row % shape.channels];
  const auto [mean, rstd] = statistics[group];
#pragma unroll 4
  for (int64_t i = row * shape.spatial + threadIdx.x; i < (row + 1) * shape.spatial; i += kThreads) {
    const float xhat = (static_cast<float>(x[i]) - mean) * rstd;
    dx[i] = rstd * (static_cast<float>(dy[i]) * row_weight - m1 - xhat * m2);
  }
}

// One thread a channel: dweight and dbias (channels), from the sums of its rows.
__global__ void affine_gradients(const double2* __restrict__ row_sums, Shape shape, float* __restrict__ dweight,
                                 float* __restrict__ dbias) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= shape.channels) return;
  double sum = 0.0;
  double sum_xhat = 0.0;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    sum += row_sums[sample * shape.channels + channel].x;
    sum_xhat += row_sums[sample * shape.channels + channel].y;
  }
  dbias[channel] = static_cast<float>(sum);
  dweight[channel] = static_cast<float>(sum_xhat);
}

void check_vector(const torch::Tensor& tensor, const torch::Tensor& x, const char* name) {
  TORCH_CHECK(tensor.device() == x.device() && tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat &&
              tensor.numel() == x.size(1), name, " must be float32, contiguous, with an element for each channel");
}

Shape shape_of(const torch::Tensor& x, const torch::Tensor& weight, int64_t groups) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.dim() >= 2, "x must be (batch, channels, *spatial), contiguous");
  TORCH_CHECK(x.scalar_type() == torch::kFloat, "x must be float32");
  TORCH_CHECK(groups > 0 && x.size(1) % groups == 0, x.size(1), " channels do not divide into ", groups, " groups");
  check_vector(weight, x, "weight");
  int64_t spatial = 1;
  for (int64_t axis = 2; axis < x.dim(); ++axis) spatial *= x.size(axis);
  return {x.size(0), x.size(1), spatial, groups, x.size(1) / groups};
}

// y like x; statistics (batch, groups, 2), mean and rstd.
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups,
                                   double eps) {
  const Shape shape = shape_of(x, weight, groups);
  check_vector(bias, x, "bias");
  const c10::cuda::CUDAGuard guard(x.device());
  auto y = torch::empty_like(x);
  auto statistics = torch::empty({shape.samples, groups, 2}, weight.options());
  if (x.numel() == 0) return {y, statistics};
  const unsigned blocks = shape.samples * groups;
  normalise_groups<<<blocks, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), shape, eps, y.data_ptr<float>(),
      reinterpret_cast<float2*>(statistics.data_ptr<float>()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, statistics};
}

// dx like x; dweight and dbias (channels).
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight,
                                    torch::Tensor statistics) {
  const Shape shape = shape_of(x, weight, statistics.size(1));
  TORCH_CHECK(dy.device() == x.device() && dy.is_contiguous() && dy.sizes() == x.sizes() &&
              dy.scalar_type() == x.scalar_type(), "dy must be like x");
  const c10::cuda::CUDAGuard guard(x.device());
  const auto stream = at::cuda::getCurrentCUDAStream();
  auto dx = torch::empty_like(x);
  auto dweight = torch::zeros_like(weight);
  auto dbias = torch::zeros_like(weight);
  if (x.numel() == 0) return {dx, dweight, dbias};
  auto sums = torch::empty({shape.samples, shape.channels, 2}, weight.options().dtype(torch::kDouble));
  double2* row_sums = reinterpret_cast<double2*>(sums.data_ptr<double>());
  const float2* moments = reinterpret_cast<const float2*>(statistics.data_ptr<float>());
  const unsigned rows = shape.samples * shape.channels;
  sum_rows<<<rows, kThreads, 0, stream>>>(dy.data_ptr<float>(), x.data_ptr<float>(), moments, shape, row_sums);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  input_gradient<<<rows, kThreads, 0, stream>>>(dy.data_ptr<float>(), x.data_ptr<float>(), weight.data_ptr<float>(),
                                                moments, row_sums, shape, dx.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  affine_gradients<<<(shape.channels + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      row_sums, shape, dweight.data_ptr<float>(), dbias.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {dx, dweight, dbias};
}
"""

KERNELS = load_inline(
    name="group_norm_plain",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3"],
)


class GroupNormFunction(torch.autograd.Function):
    """The kernels as one differentiable operation."""

    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        """Return y like x; keeps x, weight and the statistics (batch, groups, 2)."""
        x, weight = x.contiguous(), weight.contiguous()
        y, statistics = KERNELS.forward(x, weight, bias.contiguous(), groups, eps)
        ctx.save_for_backward(x, weight, statistics)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return dx, dweight and dbias."""
        dx, dweight, dbias = KERNELS.backward(dy.contiguous(), *ctx.saved_tensors)
        return dx, dweight, dbias, None, None


class ModelNew(nn.Module):
    """Group normalisation with the parameters of ``nn.GroupNorm``; input (batch, features, *spatial)."""

    def __init__(self, num_features: int, num_groups: int):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups, num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x."""
        return GroupNormFunction.apply(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps)

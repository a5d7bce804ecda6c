# Rendered from templates/gemm_bias_add_hardtanh_mish_group_norm_plain: change that, not this file, and render again.
# template: gemm_bias_add_hardtanh_mish_group_norm_plain
# parameters: {"warps":8}
# digest: sha256:4fbbdccf185107d0f0887d5b4abdfbe5ce769475bbbdbba4530fa6700125fe72
"""A linear layer, a bias, Hardtanh, Mish and group normalisation: torch multiplies, three plain kernels do the rest.

x (batch, in_features); z, a, y (batch, out_features); all float32. A group is out_features / groups
neighbouring features of one sample. With mean and rstd = 1 / sqrt(variance + eps) of a's group:

    z = x @ linear_weight.T + (linear_bias + added_bias), which broadcast
    h = Hardtanh(z), z clamped to [-1, 1]
    a = Mish(h) = h * tanh(log(1 + e)) = h - 2 h q,  e = exp(h),  q = 1 / (e (e + 2) + 2)
    y = xhat * weight + bias,  xhat = (a - mean) * rstd

    dweight = sum over the batch of dy * xhat,  dbias = sum of dy
    da = rstd * (dy * weight - m1 - xhat * m2),  m1 and m2 the group's means of dy * weight and dy * weight * xhat
    dz = da * (1 - 2 q + 4 h e (1 + e) q^2) inside of (-1, 1), else 0

Replaces: ``add``, ``hardtanh``, ``mish``, ``native_group_norm`` and their backwards. Every sum has a fixed order.
"""

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> forward(torch::Tensor z, torch::Tensor weight, torch::Tensor bias, int64_t groups,
                                   double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor z, torch::Tensor weight,
                                    torch::Tensor statistics);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

constexpr int kWarps = 8;        // of a block that normalises, a group each
constexpr int kColumns = 32;     // that a block sums over the batch
constexpr int kRowsAtOnce = 16;  // of such a block

// z (rows, columns); each row has `groups` groups of `length` columns.
struct Shape {
  int64_t rows, columns, groups, length;
};

// The sum over a warp, in every lane.
__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

// Not by fminf and fmaxf, which would turn NaN into an edge.
__device__ float hardtanh(float z) { return z < -1.0f ? -1.0f : (z > 1.0f ? 1.0f : z); }

// Intrinsics, so that forward and backward get the same bits of a whatever the compiler fuses.
__device__ float activation(float z) {
  const float h = hardtanh(z);
  const float e = expf(h);
  const float q = 1.0f / __fmaf_rn(e, e + 2.0f, 2.0f);
  return __fmaf_rn(-2.0f * h, q, h);
}

__device__ float activation_slope(float z) {
  if (z <= -1.0f || z >= 1.0f) return 0.0f;
  const float e = expf(z);
  const float q = 1.0f / (e * (e + 2.0f) + 2.0f);
  return 1.0f - 2.0f * q + 4.0f * z * e * (1.0f + e) * (q * q);
}

// One warp a group: y, and mean and rstd in statistics (rows, groups). A lane reads only what it has written of y.
__global__ void normalise_groups(const float* __restrict__ z, const float* __restrict__ weight,
                                 const float* __restrict__ bias, Shape shape, float eps, float* y,
                                 float2* __restrict__ statistics) {
  const int lane = threadIdx.x % 32;
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (group >= shape.rows * shape.groups) return;
  const int64_t row = group / shape.groups;
  const int64_t first = group % shape.groups * shape.length;  // column
  z += row * shape.columns;
  y += row * shape.columns;
  float sum = 0.0f;
  for (int64_t c = first + lane; c < first + shape.length; c += 32) {
    y[c] = activation(z[c]);
    sum += y[c];
  }
  const float mean = warp_sum(sum) / shape.length;
  float squares = 0.0f;
  for (int64_t c = first + lane; c < first + shape.length; c += 32) squares += (y[c] - mean) * (y[c] - mean);
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / shape.length + eps);
  if (lane == 0) statistics[group] = {mean, rstd};
  for (int64_t c = first + lane; c < first + shape.length; c += 32) y[c] = (y[c] - mean) * rstd * weight[c] + bias[c];
}

// One warp a group: dz.
__global__ void input_gradient(const float* __restrict__ dy, const float* __restrict__ z,
                               const float* __restrict__ weight, const float2* __restrict__ statistics, Shape shape,
                               float* __restrict__ dz) {
  const int lane = threadIdx.x % 32;
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (group >= shape.rows * shape.groups) return;
  const int64_t row = group / shape.groups;
  const int64_t first = group % shape.groups * shape.length;
  const auto [mean, rstd] = statistics[group];
  z += row * shape.columns;
  dy += row * shape.columns;
  float m1 = 0.0f;
  float m2 = 0.0f;
  for (int64_t c = first + lane; c < first + shape.length; c += 32) {
    const float xhat = (activation(z[c]) - mean) * rstd;
    m1 += dy[c] * weight[c];
    m2 += dy[c] * weight[c] * xhat;
  }
  m1 = warp_sum(m1) / shape.length;
  m2 = warp_sum(m2) / shape.length;
  for (int64_t c = first + lane; c < first + shape.length; c += 32) {
    const float xhat = (activation(z[c]) - mean) * rstd;
    dz[row * shape.columns + c] = rstd * (dy[c] * weight[c] - m1 - xhat * m2) * activation_slope(z[c]);
  }
}

// A block sums kColumns columns over all rows: dweight, dbias, and the linear layer's dlinear_bias (columns).
__global__ void column_sums(const float* __restrict__ dy, const float* __restrict__ z,
                            const float2* __restrict__ statistics, const float* __restrict__ dz, Shape shape,
                            float* dweight, float* dbias, float* dlinear_bias) {
  __shared__ float sums[3][kRowsAtOnce][kColumns];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  float of_dy_xhat = 0.0f, of_dy = 0.0f, of_dz = 0.0f;
  if (c < shape.columns) {
    for (int64_t row = threadIdx.y; row < shape.rows; row += kRowsAtOnce) {
      const int64_t at = row * shape.columns + c;
      const auto [mean, rstd] = statistics[row * shape.groups + c / shape.length];
      of_dy_xhat += dy[at] * ((activation(z[at]) - mean) * rstd);
      of_dy += dy[at];
      of_dz += dz[at];
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = of_dy_xhat;
  sums[1][threadIdx.y][threadIdx.x] = of_dy;
  sums[2][threadIdx.y][threadIdx.x] = of_dz;
  __syncthreads();
  if (threadIdx.y >= 3 || c >= shape.columns) return;
  float sum = 0.0f;
  for (int row = 0; row < kRowsAtOnce; ++row) sum += sums[threadIdx.y][row][threadIdx.x];
  float* const targets[] = {dweight, dbias, dlinear_bias};
  targets[threadIdx.y][c] = sum;
}

void check_vector(const torch::Tensor& tensor, const torch::Tensor& x, const char* name) {
  TORCH_CHECK(tensor.device() == x.device() && tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat &&
              tensor.numel() == x.size(1), name, " must be float32, contiguous, with an element for each channel");
}

Shape shape_of(const torch::Tensor& z, const torch::Tensor& weight, int64_t groups) {
  TORCH_CHECK(z.is_cuda() && z.dim() == 2 && z.is_contiguous() && z.scalar_type() == torch::kFloat,
              "z must be (batch, features), float32, contiguous");
  TORCH_CHECK(groups > 0 && z.size(1) % groups == 0, z.size(1), " features do not divide into ", groups, " groups");
  check_vector(weight, z, "weight");
  return {z.size(0), z.size(1), groups, z.size(1) / groups};
}

// y like z; statistics (rows, groups, 2), mean and rstd.
std::vector<torch::Tensor> forward(torch::Tensor z, torch::Tensor weight, torch::Tensor bias, int64_t groups,
                                   double eps) {
  const Shape shape = shape_of(z, weight, groups);
  check_vector(bias, z, "bias");
  const c10::cuda::CUDAGuard guard(z.device());
  auto y = torch::empty_like(z);
  auto statistics = torch::empty({shape.rows, groups, 2}, z.options());
  if (z.numel() == 0) return {y, statistics};
  const unsigned blocks = (shape.rows * groups + kWarps - 1) / kWarps;
  normalise_groups<<<blocks, kWarps * 32, 0, at::cuda::getCurrentCUDAStream()>>>(
      z.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), shape, static_cast<float>(eps),
      y.data_ptr<float>(), reinterpret_cast<float2*>(statistics.data_ptr<float>()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, statistics};
}

// dz like z; dweight, dbias and dlinear_bias (columns).
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor z, torch::Tensor weight,
                                    torch::Tensor statistics) {
  const Shape shape = shape_of(z, weight, statistics.size(1));
  TORCH_CHECK(dy.device() == z.device() && dy.is_contiguous() && dy.sizes() == z.sizes() &&
              dy.scalar_type() == torch::kFloat, "dy must be like z");
  const c10::cuda::CUDAGuard guard(z.device());
  const auto stream = at::cuda::getCurrentCUDAStream();
  auto dz = torch::empty_like(z);
  auto dweight = torch::zeros_like(weight), dbias = torch::zeros_like(weight), dlinear_bias = torch::zeros_like(weight);
  if (z.numel() == 0) return {dz, dweight, dbias, dlinear_bias};
  const float2* moments = reinterpret_cast<const float2*>(statistics.data_ptr<float>());
  const unsigned blocks = (shape.rows * shape.groups + kWarps - 1) / kWarps;
  input_gradient<<<blocks, kWarps * 32, 0, stream>>>(dy.data_ptr<float>(), z.data_ptr<float>(),
                                                     weight.data_ptr<float>(), moments, shape, dz.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  column_sums<<<(shape.columns + kColumns - 1) / kColumns, dim3(kColumns, kRowsAtOnce), 0, stream>>>(
      dy.data_ptr<float>(), z.data_ptr<float>(), moments, dz.data_ptr<float>(), shape,
      dweight.data_ptr<float>(), dbias.data_ptr<float>(), dlinear_bias.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {dz, dweight, dbias, dlinear_bias};
}
"""

KERNELS = load_inline(
    name="gemm_bias_add_hardtanh_mish_group_norm_plain",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3"],
)


class FusedFunction(torch.autograd.Function):
    """The product by torch and the kernels behind it, as one differentiable operation."""

    @staticmethod
    def forward(ctx, x, linear_weight, linear_bias, added_bias, weight, bias, groups, eps):
        """Return y (batch, out_features); keeps z and the statistics (batch, groups, 2)."""
        weight = weight.contiguous()
        z = torch.addmm(linear_bias + added_bias, x, linear_weight.t())
        y, statistics = KERNELS.forward(z, weight, bias.contiguous(), groups, eps)
        ctx.save_for_backward(x, linear_weight, z, weight, statistics)
        ctx.added_shape = added_bias.shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return the gradients of the six tensors."""
        x, linear_weight, z, weight, statistics = ctx.saved_tensors
        dz, dweight, dbias, dlinear_bias = KERNELS.backward(dy.contiguous(), z, weight, statistics)
        dx = dz @ linear_weight if ctx.needs_input_grad[0] else None
        dlinear_weight = dz.t() @ x
        return dx, dlinear_weight, dlinear_bias, dz.sum_to_size(ctx.added_shape), dweight, dbias, None, None


class ModelNew(nn.Module):
    """The layers with the parameters of the modules they replace; input (batch, in_features)."""

    def __init__(self, in_features: int, out_features: int, bias_shape: tuple[int, ...], num_groups: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.groupnorm = nn.GroupNorm(num_groups, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run all layers."""
        gemm, norm = self.gemm, self.groupnorm
        biases = (gemm.bias, self.bias)
        return FusedFunction.apply(x, gemm.weight, *biases, norm.weight, norm.bias, norm.num_groups, norm.eps)

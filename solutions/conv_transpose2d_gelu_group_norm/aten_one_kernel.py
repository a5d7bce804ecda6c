# Rendered from templates/conv_transpose2d_gelu_group_norm: change that, not this file, and render again.
# template: conv_transpose2d_gelu_group_norm
# parameters: {"block_channels":64,"block_pixels":256,"convolution":"aten","depth":8,"gelu":"pass","statistics":"one_kernel","thread_channels":8,"thread_pixels":8,"threads":1024,"tiles_per_block":4,"unroll":2,"vector_width":4,"weight_blocks":1056,"weight_channels":64,"weight_pixels":32}
# digest: sha256:3b066adfdfa19954ca708a3242bd48cc976ba9198be0e5d1f5ed818ddbc16e82
"""A transposed convolution, exact GELU and group normalisation, forward and backward.

Computes, for x of shape (batch, in_channels, height, width), float32, and each group of channels of each sample:

    z = conv_transpose2d(x, conv_transpose.weight, stride) + conv_transpose.bias    (batch, out_channels, *fine)
    a = z * (1 + erf(z / sqrt(2))) / 2
    y = (a - mean) / sqrt(variance + eps) * group_norm.weight + group_norm.bias

with fine = (extent - 1) * stride + kernel along either axis, and the gradients of x, conv_transpose.weight
(in_channels, out_channels, *kernel), conv_transpose.bias, group_norm.weight and group_norm.bias (out_channels,), all
float32.

Replaces: ``torch.nn.functional.gelu``, ``torch.nn.GroupNorm`` and their backwards (``gelu_backward``,
``native_group_norm``, ``native_group_norm_backward``), the addition of the convolution's bias and the sum for its
gradient. The convolution itself stays torch's (``conv_transpose2d``), as does its backward (``convolution_backward``):
they follow ``torch.backends.cudnn.allow_tf32``, on by default.

Why that should be faster: behind the convolution eager PyTorch moves z's size through memory seven times in the forward
(the convolution's bias reads and writes, GELU reads and writes, group norm reads twice and writes) and nine times in
the backward (group norm reads two tensors twice and writes one, GELU reads two and writes one, the gradient of the
convolution's bias reads one). Here what lies between z and y never exists: GELU is computed again wherever z is read,
since an erf costs less than its way through memory. Three times in the forward (z twice, y once) and five times in the
backward (dy and z twice, dz once), the convolution's bias added and its gradient summed on the way. From forward to
backward only x, z and the statistics are kept.
A block reads a group, reduces it and normalises it: where a group fits the caches its second reading never leaves the
chip, and small inputs pay for fewer launches.

Forward:   normalise_groups     grid (batch * groups), block (32 .. 1024)
Backward:  group_gradients      grid (batch * groups), block (32 .. 1024)
           shift_gradient       grid (out_channels), block (1024): of the convolution's bias
           affine_gradients     grid (out_channels / 32), block (32, 32)

Every reduction of these kernels has a fixed order (no atomics): the same input gives the same bits.
"""

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> forward(torch::Tensor z, torch::Tensor convolution_bias, torch::Tensor weight,
                                   torch::Tensor bias, int64_t groups, double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor z, torch::Tensor convolution_bias,
                                    torch::Tensor weight, torch::Tensor statistics, std::vector<bool> wants);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <algorithm>

using Element = float;
using Weight = float;

constexpr int kThreads = 1024;  // of a block that walks over a long row or group
constexpr int kGroupThreads = kThreads;
constexpr int kVectorWidth = 4;  // floats a load, where alignment allows
constexpr int kBatch = 8;  // floats a thread holds of one tile

constexpr int kWarpSize = 32;
constexpr int kMaxWarps = 32;  // of one block
constexpr unsigned kAllLanes = 0xffffffffu;

int64_t ceil_div(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }

// Blocks for so many items; kernels stride by gridDim.x over what lies beyond CUDA's limit.
unsigned grid_for(int64_t items) { return std::min<int64_t>(items, 0x7fffffff); }

// Whole warps for a block that walks over `length` elements, four a thread.
unsigned threads_for(int64_t length, int most) { return std::clamp<int64_t>(ceil_div(length, 128) * 32, 32, most); }

// Whether rows of so many elements, from these addresses on, can be read in vectors of 16 bytes.
template <typename... Elements>
bool by_vector(int64_t length, const Elements*... rows) {
  return length * sizeof(Element) % 16 == 0 && ((reinterpret_cast<uintptr_t>(rows) % 16 == 0) && ...);
}

__device__ __forceinline__ float as_float(float value) { return value; }
__device__ __forceinline__ void put(float* to, float value) { *to = value; }

template <int kWidth>
__device__ inline void load_vector(const float* source, float* values) {
  if constexpr (kWidth == 1) {
    values[0] = *source;
  } else {
    const float4& vector = *reinterpret_cast<const float4*>(source);
    values[0] = vector.x, values[1] = vector.y, values[2] = vector.z, values[3] = vector.w;
  }
}

template <int kWidth>
__device__ inline void store_vector(float* target, const float* values) {
  if constexpr (kWidth == 1) *target = values[0];
  else *reinterpret_cast<float4*>(target) = make_float4(values[0], values[1], values[2], values[3]);
}

// The elements, out of `length`, that whole tiles of this block cover; the rest is walked one by one.
__device__ inline int64_t tiled_length(int64_t length) {
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kBatch;
  return length / tile * tile;
}

// Tiles of kBatch elements a thread, in registers: all loads of a tile are in flight before the first is used. Thread t
// owns the vectors t, t + blockDim.x, t + 2 blockDim.x, ..., so that warps read whole lines.
template <int kWidth>
__device__ inline void load_tile(const Element* tile, float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    load_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

template <int kWidth>
__device__ inline void store_tile(Element* tile, const float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    store_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

// target[i] = map(source[i]) for i < length, by the whole block.
template <int kWidth, typename Map>
__device__ inline void transform(const Element* source, Element* target, int64_t length, Map map) {
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(source + start, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
    store_tile<kWidth>(target + start, values);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) put(target + i, map(as_float(source[i])));
}

// target[i] = map(first[i], second[i]) for i < length, by the whole block.
template <int kWidth, typename Map>
__device__ inline void transform(const Element* first, const Element* second, Element* target, int64_t length,
                                 Map map) {
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch], others[kBatch];
    load_tile<kWidth>(first + start, values);
    load_tile<kWidth>(second + start, others);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i], others[i]);
    store_tile<kWidth>(target + start, values);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    put(target + i, map(as_float(first[i]), as_float(second[i])));
  }
}

// Reductions in a fixed order: the same bits in every run. A type has from_lane_above(value, offset), its shuffle.

__device__ inline double from_lane_above(double value, int offset) {
  return __shfl_down_sync(kAllLanes, value, offset);
}

struct Add {
  template <typename Value>
  __device__ Value operator()(const Value& left, const Value& right) const { return left + right; }
};

// Over a warp; complete in lane 0 only.
template <typename Value, typename Combine>
__device__ inline Value warp_reduce(Value value, Combine combine) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = combine(value, from_lane_above(value, offset));
  return value;
}

// Over a block of whole warps, in every thread; `scratch` is shared memory of kMaxWarps values.
template <typename Value, typename Combine>
__device__ inline Value block_reduce(Value value, Value identity, Value* scratch, Combine combine) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int warps = blockDim.x / kWarpSize;
  value = warp_reduce(value, combine);
  __syncthreads();  // every thread has read the result of the reduction before
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = warp_reduce(lane < warps ? scratch[lane] : identity, combine);
    if (lane == 0) scratch[0] = value;
  }
  __syncthreads();
  return scratch[0];
}

// Mean and sum of squared deviations, merged pairwise (Chan, Golub and LeVeque 1979): E[x^2] - E[x]^2 would lose all
// digits of the variance where |mean| is much larger than the spread.
struct Moments {
  float count, mean, m2;
};

struct MergeMoments {
  __device__ Moments operator()(const Moments& left, const Moments& right) const {
    const float count = left.count + right.count;
    const float share = count > 0.0f ? right.count / count : 0.0f;
    const float delta = right.mean - left.mean;
    return {count, left.mean + delta * share, left.m2 + right.m2 + delta * delta * left.count * share};
  }
};

__device__ inline Moments from_lane_above(const Moments& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.count, offset), __shfl_down_sync(kAllLanes, value.mean, offset),
          __shfl_down_sync(kAllLanes, value.m2, offset)};
}

// By two passes over registers: one division a tile instead of one an element.
__device__ inline Moments moments_of(const float (&values)[kBatch]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) sum += values[i];
  const float mean = sum / kBatch;
  float m2 = 0.0f;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) m2 += (values[i] - mean) * (values[i] - mean);
  return {static_cast<float>(kBatch), mean, m2};
}

// GELU itself, not its approximation by a hyperbolic tangent: a = z Phi(z) and da/dz = Phi(z) + z phi(z), with the
// normal distribution Phi(z) = (1 + erf(z / sqrt(2))) / 2 and its density phi(z) = exp(-z^2 / 2) / sqrt(2 pi).

// An element as it is normalised, and its derivative by the element in memory.
struct Activation {
  float value;
  float slope;
};

constexpr float kSqrtHalf = 0.70710678f;
constexpr float kDensityAtZero = 0.39894228f;  // 1 / sqrt(2 pi)
constexpr float kHalfLog2E = 0.72134752f;      // log2(e) / 2

__device__ inline float normal_distribution(float z) { return __fmaf_rn(0.5f, erff(z * kSqrtHalf), 0.5f); }

// The intrinsic keeps the compiler from fusing the product with what follows, so that every kernel gets the same bits:
// where the values of a group are equal, the last bit of a difference is blown up by 1 / sqrt(eps).
__device__ inline float gelu(float z) { return __fmul_rn(z, normal_distribution(z)); }

__device__ inline Activation gelu_with_slope(float z) {
  const float distribution = normal_distribution(z);
  const float density = kDensityAtZero * exp2f(-kHalfLog2E * z * z);
  return {__fmul_rn(z, distribution), distribution + z * density};
}

// The convolution's bias (channels), which is added where its result is read: for torch it would be one more pass.
struct Shift {
  const float* of;
};

// What is normalised of an element that the convolution wrote.
struct Activate {
  float shift;
  __device__ float operator()(float x) const { return gelu(x + shift); }
  __device__ Activation with_slope(float x) const { return gelu_with_slope(x + shift); }
};

// x is (samples, channels, spatial), contiguous. A row is one channel of one sample, a group channels / groups of them.
struct Shape {
  int64_t samples, channels, groups, spatial;
};

// Rows shorter than this are not worth a block or a warp: their elements are spread over threads instead.
constexpr int64_t kShortRow = 64;

// The moments of this thread's share of data[0 .. length).
template <int kWidth, typename Map>
__device__ inline Moments thread_moments(const Element* data, int64_t length, Map map) {
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(data + start, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
    running = MergeMoments()(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = MergeMoments()(running, Moments{1.0f, map(as_float(data[i])), 0.0f});
  }
  return running;
}

// What the gradients need of one row: sum(dy) and sum(dy * xhat), xhat = (activate(x) - mean) * rstd.
struct RowSums {
  float dy, dy_xhat;
};

__device__ inline RowSums operator+(const RowSums& left, const RowSums& right) {
  return {left.dy + right.dy, left.dy_xhat + right.dy_xhat};
}

__device__ inline RowSums from_lane_above(const RowSums& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.dy, offset), __shfl_down_sync(kAllLanes, value.dy_xhat, offset)};
}

// Over `length` elements of a row, in every thread of the block. A tile is summed by itself before it is added, so that
// rounding grows with the number of tiles and not of elements.
template <int kWidth>
__device__ inline RowSums block_row_sums(const Element* dy, const Element* x, int64_t length,
                                         const Activate& activate, float mean, float rstd, RowSums* scratch) {
  RowSums running = {0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float gradients[kBatch], values[kBatch];
    load_tile<kWidth>(dy + start, gradients);
    load_tile<kWidth>(x + start, values);
    RowSums tile = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      tile.dy += gradients[i];
      tile.dy_xhat += gradients[i] * ((activate(values[i]) - mean) * rstd);
    }
    running = running + tile;
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    const float gradient = as_float(dy[i]);
    running = running + RowSums{gradient, gradient * ((activate(as_float(x[i])) - mean) * rstd)};
  }
  return block_reduce(running, RowSums{0.0f, 0.0f}, scratch, Add());
}

// The same by one thread.
__device__ inline RowSums thread_row_sums(const Element* dy, const Element* x, int64_t length,
                                          const Activate& activate, float mean, float rstd) {
  RowSums running = {0.0f, 0.0f};
  for (int64_t i = 0; i < length; ++i) {
    const float gradient = as_float(dy[i]);
    running = running + RowSums{gradient, gradient * ((activate(as_float(x[i])) - mean) * rstd)};
  }
  return running;
}

struct Normalise {
  Activate activate;
  float mean;
  float scale;  // rstd * weight
  float bias;
  __device__ float operator()(float x) const { return (activate(x) - mean) * scale + bias; }
};

// dx = activate'(x) * rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight, the means over the group
struct InputGradient {
  Activate activate;
  float mean, rstd, weight, mean_dy, mean_dy_xhat;
  __device__ float operator()(float dy, float x) const {
    const Activation a = activate.with_slope(x);
    const float xhat = (a.value - mean) * rstd;
    return a.slope * (rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat));
  }
};

// Writes dx for a stretch of a row, by the whole block, and its sum to sums[row].
template <int kWidth>
__device__ inline void differentiate(const Element* dy, const Element* x, Element* dx, int64_t length,
                                     const InputGradient& gradient, double* scratch, float* sums, int64_t row) {
  float share = 0.0f;
  transform<kWidth>(dy, x, dx, length, [&](float dy_of_one, float x_of_one) {
    const float dx_of_one = gradient(dy_of_one, x_of_one);
    share += dx_of_one;
    return dx_of_one;
  });
  const double sum = block_reduce(static_cast<double>(share), 0.0, scratch, Add());
  if (threadIdx.x == 0) sums[row] = static_cast<float>(sum);
}

// A number a channel was added to x: its gradient is the sum of dx over samples and positions, from sums
// (samples, channels, parts), in double and in order. Grid (channels).
__global__ void __launch_bounds__(kThreads)
    shift_gradient(const float* sums, int64_t samples, int64_t channels, int64_t parts, float* dshift) {
  __shared__ double scratch[kMaxWarps];
  for (int64_t channel = blockIdx.x; channel < channels; channel += gridDim.x) {
    double share = 0.0;
    for (int64_t i = threadIdx.x; i < samples * parts; i += blockDim.x) {
      const int64_t sample = i / parts;
      share += sums[(sample * channels + channel) * parts + (i - sample * parts)];
    }
    const double sum = block_reduce(share, 0.0, scratch, Add());
    if (threadIdx.x == 0) dshift[channel] = static_cast<float>(sum);
  }
}

constexpr int kAffineLanes = 32;

// dweight and dbias (channels): the sums of each row, over the samples, in double and in order. Grid (channels / 32),
// block (32 channels, 32 lanes of samples).
__global__ void affine_gradients(const RowSums* row_sums, int64_t samples, int64_t channels, Weight* dweight,
                                 Weight* dbias) {
  __shared__ double lane_dy[kAffineLanes][kWarpSize];
  __shared__ double lane_dy_xhat[kAffineLanes][kWarpSize];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  double sum_dy = 0.0, sum_dy_xhat = 0.0;
  if (channel < channels) {
    for (int64_t sample = threadIdx.y; sample < samples; sample += kAffineLanes) {
      const RowSums row = row_sums[sample * channels + channel];
      sum_dy += row.dy;
      sum_dy_xhat += row.dy_xhat;
    }
  }
  lane_dy[threadIdx.y][threadIdx.x] = sum_dy;
  lane_dy_xhat[threadIdx.y][threadIdx.x] = sum_dy_xhat;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int lane = 1; lane < kAffineLanes; ++lane) {
    sum_dy += lane_dy[lane][threadIdx.x];
    sum_dy_xhat += lane_dy_xhat[lane][threadIdx.x];
  }
  if (dweight != nullptr) put(dweight + channel, static_cast<float>(sum_dy_xhat));
  if (dbias != nullptr) put(dbias + channel, static_cast<float>(sum_dy));
}

// Forward, a block a group: reduces it, then normalises it while it may still lie in L2. Grid (samples * groups).
template <int kGroupWidth, int kRowWidth>
__global__ void __launch_bounds__(kGroupThreads)
    normalise_groups(const Element* x, Shift shift, const Weight* weight, const Weight* bias, Shape shape,
                     float eps, Element* y, float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  const int64_t channels_per_group = shape.channels / shape.groups;
  const int64_t group_length = channels_per_group * shape.spatial;
  for (int64_t group = blockIdx.x; group < shape.samples * shape.groups; group += gridDim.x) {
    const Element* group_x = x + group * group_length;
    Element* group_y = y + group * group_length;
    const int64_t first_channel = group % shape.groups * channels_per_group;
    Moments running = {0.0f, 0.0f, 0.0f};
    if (shape.spatial < kShortRow) {
      for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
        const Activate activate = {shift.of[first_channel + i / shape.spatial]};
        running = MergeMoments()(running, Moments{1.0f, activate(as_float(group_x[i])), 0.0f});
      }
    } else {
      for (int64_t member = 0; member < channels_per_group; ++member) {
        const Activate activate = {shift.of[first_channel + member]};
        running = MergeMoments()(
            running, thread_moments<kRowWidth>(group_x + member * shape.spatial, shape.spatial, activate));
      }
    }
    const Moments moments = block_reduce(running, Moments{0.0f, 0.0f, 0.0f}, scratch, MergeMoments());
    const float group_rstd = 1.0f / sqrtf(moments.m2 / static_cast<float>(group_length) + eps);
    if (threadIdx.x == 0) {
      mean[group] = moments.mean;
      rstd[group] = group_rstd;
    }
    if (shape.spatial < kShortRow) {
      for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
        const int64_t channel = first_channel + i / shape.spatial;
        const Normalise normalise = {Activate{shift.of[channel]}, moments.mean, group_rstd * as_float(weight[channel]),
                                     as_float(bias[channel])};
        put(group_y + i, normalise(as_float(group_x[i])));
      }
      continue;
    }
    for (int64_t member = 0; member < channels_per_group; ++member) {
      const int64_t channel = first_channel + member;
      const Normalise normalise = {Activate{shift.of[channel]}, moments.mean, group_rstd * as_float(weight[channel]),
                                   as_float(bias[channel])};
      const int64_t start = member * shape.spatial;
      transform<kRowWidth>(group_x + start, group_y + start, shape.spatial, normalise);
    }
  }
}

// Backward, a block a group: sums each of its rows, and turns the sums into dx while the rows may still lie in L2.
// `dx` may be null: only the row sums are wanted. `dx_sums`: of each row. Grid (samples * groups).
template <int kWidth>
__global__ void __launch_bounds__(kGroupThreads)
    group_gradients(const Element* dy, const Element* x, Shift shift, const Weight* weight, const float* mean,
                    const float* rstd, Shape shape, RowSums* row_sums, Element* dx, float* dx_sums) {
  __shared__ RowSums row_scratch[kMaxWarps];
  __shared__ double group_scratch[kMaxWarps];
  const int64_t channels_per_group = shape.channels / shape.groups;
  const int64_t group_length = channels_per_group * shape.spatial;
  for (int64_t group = blockIdx.x; group < shape.samples * shape.groups; group += gridDim.x) {
    const Element* group_dy = dy + group * group_length;
    const Element* group_x = x + group * group_length;
    RowSums* group_rows = row_sums + group * channels_per_group;
    const int64_t first_channel = group % shape.groups * channels_per_group;
    const Weight* group_weight = weight + first_channel;
    const float group_mean = mean[group];
    const float group_rstd = rstd[group];

    // This thread's share of sum(dy * weight) and sum(dy * weight * xhat) over the group.
    double share_dy = 0.0, share_dy_xhat = 0.0;
    if (shape.spatial < kShortRow) {
      for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
        const int64_t start = member * shape.spatial;
        const int64_t channel = first_channel + member;
        const RowSums sums = thread_row_sums(group_dy + start, group_x + start, shape.spatial,
                                             Activate{shift.of[channel]}, group_mean, group_rstd);
        group_rows[member] = sums;
        share_dy += static_cast<double>(as_float(group_weight[member])) * sums.dy;
        share_dy_xhat += static_cast<double>(as_float(group_weight[member])) * sums.dy_xhat;
      }
    } else {
      for (int64_t member = 0; member < channels_per_group; ++member) {
        const int64_t start = member * shape.spatial;
        const int64_t channel = first_channel + member;
        const RowSums sums = block_row_sums<kWidth>(group_dy + start, group_x + start, shape.spatial,
                                                    Activate{shift.of[channel]}, group_mean, group_rstd, row_scratch);
        if (threadIdx.x != 0) continue;
        group_rows[member] = sums;
        share_dy += static_cast<double>(as_float(group_weight[member])) * sums.dy;
        share_dy_xhat += static_cast<double>(as_float(group_weight[member])) * sums.dy_xhat;
      }
    }
    if (dx == nullptr) continue;

    const double length = static_cast<double>(group_length);
    const float mean_dy = static_cast<float>(block_reduce(share_dy, 0.0, group_scratch, Add()) / length);
    const float mean_dy_xhat = static_cast<float>(block_reduce(share_dy_xhat, 0.0, group_scratch, Add()) / length);
    Element* group_dx = dx + group * group_length;
    if (shape.spatial < kShortRow) {
      for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
        const int64_t member = i / shape.spatial;
        const int64_t channel = first_channel + member;
        const InputGradient gradient = {Activate{shift.of[channel]}, group_mean, group_rstd,
                                        as_float(group_weight[member]), mean_dy, mean_dy_xhat};
        put(group_dx + i, gradient(as_float(group_dy[i]), as_float(group_x[i])));
      }
      continue;
    }
    for (int64_t member = 0; member < channels_per_group; ++member) {
      const int64_t start = member * shape.spatial;
      const int64_t channel = first_channel + member;
      const InputGradient gradient = {Activate{shift.of[channel]}, group_mean, group_rstd,
                                      as_float(group_weight[member]), mean_dy, mean_dy_xhat};
      differentiate<kWidth>(group_dy + start, group_x + start, group_dx + start, shape.spatial, gradient,
                            group_scratch, dx_sums, group * channels_per_group + member);
    }
  }
}

float* floats(const torch::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; }

// mean and rstd (samples, groups) into statistics, then y.
void normalise(const Element* x, Shift shift, const Weight* weight, const Weight* bias,
               const Shape& shape, float eps, Element* y, const torch::Tensor& statistics) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  if (groups * group_length == 0) return;
  const auto normalise_groups = by_vector(shape.spatial, x, y)  ? ::normalise_groups<kVectorWidth, kVectorWidth>
                                : by_vector(group_length, x) ? ::normalise_groups<kVectorWidth, 1>
                                                             : ::normalise_groups<1, 1>;
  normalise_groups<<<grid_for(groups), threads_for(group_length, kGroupThreads), 0, at::cuda::getCurrentCUDAStream()>>>(
      x, shift, weight, bias, shape, eps, y, floats(statistics), floats(statistics) + groups);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Where gradients go; null where one is not wanted.
struct Gradients {
  Element* x;
  Weight *weight, *bias;  // (channels)
  float* shift;  // (channels), of what was added to x: sums over x's gradient, which it wants too
};

// The sums of dx, of each of a row's parts; short rows have none, there dx itself is summed.
void add_shift_gradient(const Element* dx, const float* dx_sums, const Shape& shape, int64_t parts, float* dshift) {
  const bool is_short = shape.spatial < kShortRow;
  shift_gradient<<<grid_for(shape.channels), kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      is_short ? dx : dx_sums, shape.samples, shape.channels, is_short ? shape.spatial : parts, dshift);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void add_affine_gradients(const RowSums* row_sums, const Shape& shape, const Gradients& gradients) {
  if (gradients.weight == nullptr && gradients.bias == nullptr) return;
  affine_gradients<<<grid_for(ceil_div(shape.channels, kWarpSize)), dim3(kWarpSize, kAffineLanes), 0,
                     at::cuda::getCurrentCUDAStream()>>>(row_sums, shape.samples, shape.channels, gradients.weight,
                                                         gradients.bias);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void differentiate_groups(const Element* dy, const Element* x, Shift shift, const Weight* weight,
                          const torch::Tensor& statistics, const Shape& shape, const Gradients& gradients) {
  const int64_t groups = shape.samples * shape.groups, rows = shape.samples * shape.channels;
  auto scratch = torch::empty({rows, 3}, statistics.options());
  RowSums* const row_sums = reinterpret_cast<RowSums*>(floats(scratch));
  float* const dx_sums = reinterpret_cast<float*>(row_sums + rows);
  if (groups > 0) {
    const bool wide = by_vector(shape.spatial, dy, x, gradients.x);
    const auto group_gradients = wide ? ::group_gradients<kVectorWidth> : ::group_gradients<1>;
    const unsigned threads = threads_for(shape.channels / shape.groups * shape.spatial, kGroupThreads);
    group_gradients<<<grid_for(groups), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        dy, x, shift, weight, floats(statistics), floats(statistics) + groups, shape, row_sums, gradients.x, dx_sums);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  if (gradients.shift != nullptr) add_shift_gradient(gradients.x, dx_sums, shape, 1, gradients.shift);
  add_affine_gradients(row_sums, shape, gradients);
}

void check(const torch::Tensor& tensor, const torch::Tensor& like, torch::IntArrayRef sizes, const char* name) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device() && tensor.scalar_type() == torch::kFloat &&
              tensor.is_contiguous() && tensor.sizes() == sizes,
              name, " must be float32, contiguous and of shape ", sizes, " on the device of x, got ", tensor.sizes());
}

Shape shape_of(const torch::Tensor& z, const torch::Tensor& weight, int64_t groups) {
  TORCH_CHECK(z.dim() >= 2, "z must be (batch, channels, *fine), got ", z.dim(), " dimension(s)");
  const int64_t channels = z.size(1);
  TORCH_CHECK(groups > 0 && channels > 0 && channels % groups == 0, channels, " channels cannot be divided into ",
              groups, " groups");
  check(z, z, z.sizes(), "z");
  check(weight, z, {channels}, "weight");
  int64_t spatial = 1;
  for (int64_t axis = 2; axis < z.dim(); ++axis) spatial *= z.size(axis);
  return {z.size(0), channels, groups, spatial};
}

// y like z; statistics (2, batch, groups): mean and 1 / sqrt(variance + eps) of GELU.
std::vector<torch::Tensor> forward(torch::Tensor z, torch::Tensor convolution_bias, torch::Tensor weight,
                                   torch::Tensor bias, int64_t groups, double eps) {
  const Shape shape = shape_of(z, weight, groups);
  check(convolution_bias, z, {shape.channels}, "the bias of the convolution");
  check(bias, z, {shape.channels}, "bias");
  const c10::cuda::CUDAGuard guard(z.device());
  auto y = torch::empty_like(z);
  auto statistics = torch::empty({2, shape.samples, groups}, z.options());
  normalise(floats(z), Shift{floats(convolution_bias)}, floats(weight), floats(bias), shape, eps,
            floats(y), statistics);
  return {y, statistics};
}

// The wanted gradients: of z, of the group norm's weight and bias, and of the convolution's bias, which is added to z.
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor z, torch::Tensor convolution_bias,
                                    torch::Tensor weight, torch::Tensor statistics, std::vector<bool> wants) {
  const Shape shape = shape_of(z, weight, statistics.size(2));
  check(convolution_bias, z, {shape.channels}, "the bias of the convolution");
  check(dy, z, z.sizes(), "the gradient of y");
  TORCH_CHECK(wants[0] || !wants[3], "the gradient of the convolution's bias wants that of z");
  const c10::cuda::CUDAGuard guard(z.device());
  std::vector<torch::Tensor> found = {z, weight, weight, weight};
  for (int i = 0; i < 4; ++i) found[i] = wants[i] ? torch::empty_like(found[i]) : torch::Tensor();
  const Gradients gradients = {floats(found[0]), floats(found[1]), floats(found[2]), floats(found[3])};
  differentiate_groups(floats(dy), floats(z), Shift{floats(convolution_bias)}, floats(weight),
                         statistics, shape, gradients);
  return found;
}
"""

KERNELS = load_inline(
    name="conv_transpose2d_gelu_group_norm",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=["forward", "backward"],
    extra_cuda_cflags=["-O3", "-Xptxas", "--split-compile=0"],  # ptxas takes a thread per kernel
)


class FusedFunction(torch.autograd.Function):
    """The convolution and the kernels behind it as one differentiable operation."""

    @staticmethod
    def forward(ctx, x, weight, bias, norm_weight, norm_bias, stride, groups, eps):
        """Return y (batch, out_channels, *fine); keeps x, z and the statistics (2, batch, groups)."""
        x, weight, norm_weight = x.contiguous(), weight.contiguous(), norm_weight.contiguous()
        z, bias = torch.conv_transpose2d(x, weight, None, stride).contiguous(), bias.contiguous()
        y, statistics = KERNELS.forward(z, bias, norm_weight, norm_bias.contiguous(), groups, eps)
        ctx.save_for_backward(x, weight, bias, norm_weight, z, statistics)
        ctx.stride = stride
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return those gradients that autograd asks for."""
        x, weight, bias, norm_weight, z, statistics = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, wants_norm_weight, wants_norm_bias = ctx.needs_input_grad[:5]
        wants = [wants_x or wants_weight or wants_bias, wants_norm_weight, wants_norm_bias, wants_bias]
        kept = (z, bias, norm_weight, statistics)
        dz, dnorm_weight, dnorm_bias, dbias = KERNELS.backward(dy.contiguous(), *kept, wants)
        dx = dweight = None
        if wants_x or wants_weight:
            dx, dweight, _ = torch.ops.aten.convolution_backward(
                dz, x, weight, None, ctx.stride, (0, 0), (1, 1), True, (0, 0), 1, (wants_x, wants_weight, False)
            )
        return dx, dweight, dbias, dnorm_weight, dnorm_bias, None, None, None


class ModelNew(nn.Module):
    """The fused layers with the parameters of the modules they replace.

    Input (batch, in_channels, height, width), float32. ``groups`` is taken and left unused, as in the problem.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int, groups: int, num_groups: int
    ):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride)
        self.group_norm = nn.GroupNorm(num_groups=num_groups, num_channels=out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run all layers; the result is (batch, out_channels, *fine), contiguous."""
        if x.dim() != 4:
            raise ValueError(f"x must be (batch, in_channels, height, width), got {x.dim()} dimension(s)")
        convolution, norm = self.conv_transpose, self.group_norm
        parameters = (convolution.weight, convolution.bias, norm.weight, norm.bias)
        return FusedFunction.apply(x, *parameters, convolution.stride, norm.num_groups, norm.eps)

# Rendered from templates/group_norm: change that, not this file, and render again.
# template: group_norm
# parameters: {"fusion":"streamed","threads":256,"tiles_per_block":4,"unroll":2,"vector_width":4}
# digest: sha256:fe697204e18a4764e35ac22126c6c9dd8261a43af405b6d551d338250e32a353
"""Group normalisation, forward and backward, in CUDA kernels of our own.

Computes, for x of shape (batch, channels, *spatial), float32, float16 or bfloat16, and each group of channels of each
sample:

    y = (x - mean) / sqrt(variance + eps) * weight + bias

and the gradients of x, weight and bias (both of shape (channels,), of the dtype of x or float32). Whatever the dtypes,
statistics and sums are float32 or better, and a result is rounded once. Kernels are compiled for the dtypes that are
met: for float32 at once, for others at the first call.

Replaces: ``torch.nn.GroupNorm`` and its backward (``native_group_norm``, ``native_group_norm_backward``).

Why that should be faster: the least traffic is x and y once each (and x, dy and dx once in the backward), which takes
3.51 and 5.27 ms at 4.28 TB/s for 112 x 64 x 512 x 512. Statistics come before the first y, so a group has to wait
somewhere: here in the shared memory and registers of all multiprocessors at once, which hold four groups of 8 MB, while
bulk copies bring the next ones. Blocks tell each other their part of a group's sums through a word in memory each.
benchmarks/group_norm.md has what was tried and measured.

Where groups are large, of rows that chunks of 4096 floats divide, on compute capability 9.0 and above:
Forward:   stream_forward   grid (multiprocessors), block (832), cooperative
Backward:  stream_backward  grid (multiprocessors), block (640), cooperative
           affine_gradients_of_chunks  grid (channels), block (1024)
Small groups, a block or a warp a group: normalise_held_groups up to 16384 floats; group_gradients and affine_gradients
up to 1024. All else: group_moments, merge_moments, normalise_rows; row_part_sums, group_means, input_gradient_rows,
affine_gradients.

Every reduction has a fixed order (no atomics): the same input gives the same bits.
"""

import functools

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

CPP_SOURCE = """
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups,
                                   double eps);
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor statistics,
                                    std::vector<bool> wants);
"""

CUDA_SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <algorithm>
#if HALVES
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

using Element = ELEMENT;  // of x, y and their gradients
using Weight = WEIGHT;    // of weight, bias and their gradients; all else is float

constexpr int kThreads = 256;  // of a block that walks over a long row or group
constexpr int kGroupThreads = 1024;  // of a block that owns a group
constexpr int kVectorWidth = 16 / sizeof(Element);  // elements a load, where alignment allows
constexpr int kBatch = kVectorWidth * 2;  // elements a thread holds of one tile
constexpr int64_t kTilesPerBlock = 4;  // that one block reduces

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

// How elements lie in memory, one by one and in vectors: floats to compute with, rounded once where they are stored.
template <typename T>
struct Format;

template <>
struct Format<float> {
  using Vector = float4;
  static __device__ __forceinline__ float widened(float value) { return value; }
  static __device__ __forceinline__ float rounded(float value) { return value; }
  static __device__ __forceinline__ void unpack(const float4& vector, float* values) {
    values[0] = vector.x, values[1] = vector.y, values[2] = vector.z, values[3] = vector.w;
  }
  static __device__ __forceinline__ float4 packed(const float* values) {
    return make_float4(values[0], values[1], values[2], values[3]);
  }
};

#if HALVES
// Eight elements in 16 bytes, by what `Of` knows of two and of one.
template <typename Of>
struct InPairs {
  using Vector = uint4;
  static __device__ __forceinline__ void unpack(const uint4& vector, float* values) {
    const uint32_t pairs[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = Of::pair(pairs[i]);
      values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
    }
  }
  static __device__ __forceinline__ uint4 packed(const float* values) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = Of::bits(Of::rounded(values[2 * i + 1])) << 16 | Of::bits(Of::rounded(values[2 * i]));
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
};

template <>
struct Format<__half> : InPairs<Format<__half>> {
  static __device__ __forceinline__ float widened(__half value) { return __half2float(value); }
  static __device__ __forceinline__ __half rounded(float value) { return __float2half_rn(value); }
  static __device__ __forceinline__ uint32_t bits(__half value) { return __half_as_ushort(value); }
  static __device__ __forceinline__ float2 pair(uint32_t bits) {
    return {__half2float(__ushort_as_half(static_cast<unsigned short>(bits))),
            __half2float(__ushort_as_half(static_cast<unsigned short>(bits >> 16)))};
  }
};

template <>
struct Format<__nv_bfloat16> : InPairs<Format<__nv_bfloat16>> {
  static __device__ __forceinline__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __forceinline__ __nv_bfloat16 rounded(float value) { return __float2bfloat16_rn(value); }
  static __device__ __forceinline__ uint32_t bits(__nv_bfloat16 value) { return __bfloat16_as_ushort(value); }
  static __device__ __forceinline__ float2 pair(uint32_t bits) {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};  // the upper half of a float's bits
  }
};
#endif

using Vector = Format<Element>::Vector;

template <typename T>
__device__ __forceinline__ float as_float(T value) {
  return Format<T>::widened(value);
}

template <typename T>
__device__ __forceinline__ void put(T* to, float value) {
  *to = Format<T>::rounded(value);
}

template <int kWidth>
__device__ inline void load_vector(const Element* source, float* values) {
  if constexpr (kWidth == 1) values[0] = as_float(*source);
  else Format<Element>::unpack(*reinterpret_cast<const Vector*>(source), values);
}

template <int kWidth>
__device__ inline void store_vector(Element* target, const float* values) {
  if constexpr (kWidth == 1) put(target, values[0]);
  else *reinterpret_cast<Vector*>(target) = Format<Element>::packed(values);
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

// x is (samples, channels, spatial), contiguous. A row is one channel of one sample, a group channels / groups of them.
struct Shape {
  int64_t samples, channels, groups, spatial;
};

// Rows shorter than this are not worth a block or a warp: their elements are spread over threads instead.
constexpr int64_t kShortRow = 64;

// The moments of this thread's share of data[0 .. length).
template <int kWidth>
__device__ inline Moments thread_moments(const Element* data, int64_t length) {
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(data + start, values);
    running = MergeMoments()(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = MergeMoments()(running, Moments{1.0f, as_float(data[i]), 0.0f});
  }
  return running;
}

template <int kWidth>
__device__ inline Moments block_moments(const Element* data, int64_t length, Moments* scratch) {
  return block_reduce(thread_moments<kWidth>(data, length), Moments{0.0f, 0.0f, 0.0f}, scratch, MergeMoments());
}

// What the gradients need of one row: sum(dy) and sum(dy * xhat), xhat = (x - mean) * rstd.
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
                                         float mean, float rstd, RowSums* scratch) {
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
      tile.dy_xhat += gradients[i] * ((values[i] - mean) * rstd);
    }
    running = running + tile;
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    const float gradient = as_float(dy[i]);
    running = running + RowSums{gradient, gradient * ((as_float(x[i]) - mean) * rstd)};
  }
  return block_reduce(running, RowSums{0.0f, 0.0f}, scratch, Add());
}

// The same by one thread.
__device__ inline RowSums thread_row_sums(const Element* dy, const Element* x, int64_t length,
                                          float mean, float rstd) {
  RowSums running = {0.0f, 0.0f};
  for (int64_t i = 0; i < length; ++i) {
    const float gradient = as_float(dy[i]);
    running = running + RowSums{gradient, gradient * ((as_float(x[i]) - mean) * rstd)};
  }
  return running;
}

struct Normalise {
  float mean;
  float scale;  // rstd * weight
  float bias;
  __device__ float operator()(float x) const { return (x - mean) * scale + bias; }
};

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight, the means over the group
struct InputGradient {
  float mean, rstd, weight, mean_dy, mean_dy_xhat;
  __device__ float operator()(float dy, float x) const {
    const float xhat = (x - mean) * rstd;
    return rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat);
  }
};

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

// Backward, a block a group: sums each of its rows, and turns the sums into dx while the rows may still lie in L2.
// `dx` may be null: only the row sums are wanted. Grid (samples * groups).
template <int kWidth>
__global__ void __launch_bounds__(kGroupThreads)
    group_gradients(const Element* dy, const Element* x, const Weight* weight, const float* mean,
                    const float* rstd, Shape shape, RowSums* row_sums, Element* dx) {
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
        const RowSums sums = thread_row_sums(group_dy + start, group_x + start, shape.spatial,
                                             group_mean, group_rstd);
        group_rows[member] = sums;
        share_dy += static_cast<double>(as_float(group_weight[member])) * sums.dy;
        share_dy_xhat += static_cast<double>(as_float(group_weight[member])) * sums.dy_xhat;
      }
    } else {
      for (int64_t member = 0; member < channels_per_group; ++member) {
        const int64_t start = member * shape.spatial;
        const RowSums sums = block_row_sums<kWidth>(group_dy + start, group_x + start, shape.spatial,
                                                    group_mean, group_rstd, row_scratch);
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
        const InputGradient gradient = {group_mean, group_rstd,
                                        as_float(group_weight[member]), mean_dy, mean_dy_xhat};
        put(group_dx + i, gradient(as_float(group_dy[i]), as_float(group_x[i])));
      }
      continue;
    }
    for (int64_t member = 0; member < channels_per_group; ++member) {
      const int64_t start = member * shape.spatial;
      const InputGradient gradient = {group_mean, group_rstd,
                                      as_float(group_weight[member]), mean_dy, mean_dy_xhat};
      transform<kWidth>(group_dy + start, group_x + start, group_dx + start, shape.spatial, gradient);
    }
  }
}

// Work cut into equal parts of whole tiles; the last may be shorter.
struct Parts {
  int64_t count, length;
};

// Parts of a reduction: no more than 256, since one block merges them.
Parts parts_of(int64_t length) {
  const int64_t tile = static_cast<int64_t>(kThreads) * kBatch;
  const int64_t part = std::max(kTilesPerBlock, ceil_div(ceil_div(length, 256), tile)) * tile;
  return {std::max<int64_t>(ceil_div(length, part), 1), part};
}

// The parts in which a row is reduced; a short one is never cut.
Parts row_parts(int64_t spatial) { return spatial < kShortRow ? Parts{1, spatial} : parts_of(spatial); }

// One tile a part, for passes that write: the blocks at work then write one dense stretch of memory.
Parts tiles_of(int64_t length) {
  const int64_t tile = static_cast<int64_t>(kThreads) * kBatch;
  return {ceil_div(length, tile), tile};
}

// Of a stretch of `extent` elements, the part that a block works on.
struct Piece {
  int64_t whole, begin, length;
};

__device__ inline Piece piece_of(int64_t item, const Parts& parts, int64_t extent) {
  const int64_t whole = item / parts.count;
  const int64_t begin = (item - whole * parts.count) * parts.length;
  const int64_t left = extent - begin;
  return {whole, begin, left < parts.length ? left : parts.length};
}

__device__ inline void write_statistics(const Moments& group, float group_length, float eps, float* mean, float* rstd) {
  *mean = group.mean;
  *rstd = 1.0f / sqrtf(group.m2 / group_length + eps);
}

// Merges the parts of a group. Grid (groups), one warp.
__global__ void merge_moments(const Moments* moments, int64_t groups, int64_t group_length, int64_t parts, float eps,
                              float* mean, float* rstd) {
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    Moments running = {0.0f, 0.0f, 0.0f};
    for (int64_t part = threadIdx.x; part < parts; part += kWarpSize) {
      running = MergeMoments()(running, moments[group * parts + part]);
    }
    running = warp_reduce(running, MergeMoments());
    if (threadIdx.x == 0) {
      write_statistics(running, static_cast<float>(group_length), eps, mean + group, rstd + group);
    }
  }
}

// The moments of each part of a group, or at once mean and rstd where it is a single part. Grid (groups * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    group_moments(const Element* x, int64_t groups, int64_t group_length, Parts parts, float eps, Moments* moments,
                  float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < groups * parts.count; item += gridDim.x) {
    const Piece piece = piece_of(item, parts, group_length);
    const int64_t group = piece.whole;
    const Moments part =
        block_moments<kWidth>(x + group * group_length + piece.begin, piece.length, scratch);
    if (threadIdx.x != 0) continue;
    if (parts.count == 1) {
      write_statistics(part, static_cast<float>(group_length), eps, mean + group, rstd + group);
    } else {
      moments[item] = part;
    }
  }
}

// Every row normalised by its group's statistics, one block a tile. Grid (rows * tiles).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_rows(const Element* x, const Weight* weight, const Weight* bias, const float* mean,
                   const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                   Parts tiles, Element* y) {
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const Piece piece = piece_of(item, tiles, spatial);
    const int64_t channel = piece.whole % channels;
    const int64_t group = piece.whole / channels_per_group;
    const Normalise normalise = {mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    const int64_t offset = piece.whole * spatial + piece.begin;
    transform<kWidth>(x + offset, y + offset, piece.length, normalise);
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    normalise_elements(const Element* x, const Weight* weight, const Weight* bias, const float* mean,
                       const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                       Element* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = {mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    put(y + i, normalise(as_float(x[i])));
  }
}

// The sums of each part of a row. Grid (rows * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_part_sums(const Element* dy, const Element* x, const float* mean, const float* rstd, int64_t rows,
                  int64_t channels, int64_t channels_per_group, int64_t spatial, Parts parts, RowSums* part_sums) {
  __shared__ RowSums scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * parts.count; item += gridDim.x) {
    const Piece piece = piece_of(item, parts, spatial);
    const int64_t group = piece.whole / channels_per_group;
    const int64_t offset = piece.whole * spatial + piece.begin;
    const RowSums sums =
        block_row_sums<kWidth>(dy + offset, x + offset, piece.length, mean[group], rstd[group],
                               scratch);
    if (threadIdx.x == 0) part_sums[item] = sums;
  }
}

// One thread a row, for short rows.
__global__ void __launch_bounds__(kThreads)
    short_row_sums(const Element* dy, const Element* x, const float* mean, const float* rstd, int64_t rows,
                   int64_t channels, int64_t channels_per_group, int64_t spatial, RowSums* row_sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const int64_t group = row / channels_per_group;
    row_sums[row] = thread_row_sums(dy + row * spatial, x + row * spatial, spatial, mean[group],
                                    rstd[group]);
  }
}

// mean(dy * weight) and mean(dy * weight * xhat) of a group.
struct GroupMeans {
  float dy, dy_xhat;
};

// Adds each row's parts in order, and the rows of the group into its means. Grid (groups).
__global__ void __launch_bounds__(kThreads)
    group_means(const RowSums* part_sums, const Weight* weight, int64_t groups, int64_t channels,
                int64_t channels_per_group, int64_t spatial, int64_t parts, RowSums* row_sums, GroupMeans* means) {
  __shared__ double scratch[kMaxWarps];
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    double group_dy = 0.0, group_dy_xhat = 0.0;
    for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
      const int64_t row = group * channels_per_group + member;
      double row_dy = 0.0, row_dy_xhat = 0.0;
      for (int64_t part = 0; part < parts; ++part) {
        const RowSums sums = part_sums[row * parts + part];
        row_dy += sums.dy;
        row_dy_xhat += sums.dy_xhat;
      }
      row_sums[row] = {static_cast<float>(row_dy), static_cast<float>(row_dy_xhat)};
      const double row_weight = as_float(weight[row % channels]);
      group_dy += row_weight * row_dy;
      group_dy_xhat += row_weight * row_dy_xhat;
    }
    group_dy = block_reduce(group_dy, 0.0, scratch, Add());
    group_dy_xhat = block_reduce(group_dy_xhat, 0.0, scratch, Add());
    const double group_length = static_cast<double>(channels_per_group * spatial);
    if (threadIdx.x == 0) {
      means[group] = {static_cast<float>(group_dy / group_length), static_cast<float>(group_dy_xhat / group_length)};
    }
  }
}

// Grid (rows * tiles).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    input_gradient_rows(const Element* dy, const Element* x, const Weight* weight, const float* mean,
                        const float* rstd, const GroupMeans* means, int64_t rows, int64_t channels,
                        int64_t channels_per_group, int64_t spatial, Parts tiles, Element* dx) {
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const Piece piece = piece_of(item, tiles, spatial);
    const int64_t channel = piece.whole % channels;
    const int64_t group = piece.whole / channels_per_group;
    const InputGradient gradient = {mean[group], rstd[group], as_float(weight[channel]),
                                    means[group].dy, means[group].dy_xhat};
    const int64_t offset = piece.whole * spatial + piece.begin;
    transform<kWidth>(dy + offset, x + offset, dx + offset, piece.length, gradient);
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    input_gradient_elements(const Element* dy, const Element* x, const Weight* weight, const float* mean,
                            const float* rstd, const GroupMeans* means, int64_t rows, int64_t channels,
                            int64_t channels_per_group, int64_t spatial, Element* dx) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const InputGradient gradient = {mean[group], rstd[group], as_float(weight[channel]),
                                    means[group].dy, means[group].dy_xhat};
    put(dx + i, gradient(as_float(dy[i]), as_float(x[i])));
  }
}

// The sum over a warp's lanes, in each of them.
template <typename T>
__device__ __forceinline__ T sum_of_lanes(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

constexpr int kMostHeld = 16;  // elements a thread
constexpr int kWide = 16 / sizeof(Element);
constexpr int kMostThreads = 1024;
constexpr int kWarpsPerBlock = 4;  // where a warp has a group to itself

// The sum over a team's threads, in each of them: over the block, or over a warp where a warp is the team.
template <bool kIsWarp>
__device__ inline float sum_of_team(float value, float* scratch) {
  value = sum_of_lanes(value);
  if constexpr (!kIsWarp) {
    const int lane = threadIdx.x % kWarpSize;
    __syncthreads();  // every warp has read what was summed before
    if (lane == 0) scratch[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    value = sum_of_lanes(lane < static_cast<int>(blockDim.x) / kWarpSize ? scratch[lane] : 0.0f);
  }
  return value;
}

// Grid (groups), or (groups / kWarpsPerBlock) where a warp is a team. A group has at most kHeld elements a thread; with
// a kWidth of kWide rows are whole vectors.
template <int kHeld, int kWidth, bool kIsWarp>
__global__ void __launch_bounds__(kIsWarp ? kWarpsPerBlock * kWarpSize : kMostThreads)
    normalise_held_groups(const Element* x, const Weight* weight, const Weight* bias, Shape shape, float eps,
                          Element* y, float* mean, float* rstd, float* mean_low) {
  __shared__ float scratch[kMaxWarps];
  const int threads = kIsWarp ? kWarpSize : blockDim.x;
  const int thread = kIsWarp ? threadIdx.x % kWarpSize : threadIdx.x;
  const int64_t teams = kIsWarp ? static_cast<int64_t>(gridDim.x) * kWarpsPerBlock : gridDim.x;
  const int64_t first =
      kIsWarp ? static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarpSize : blockIdx.x;
  const int channels_per_group = static_cast<int>(shape.channels / shape.groups);
  const unsigned spatial = static_cast<unsigned>(shape.spatial);
  const int length = channels_per_group * static_cast<int>(spatial);
  for (int64_t group = first; group < shape.samples * shape.groups; group += teams) {
    const Element* group_x = x + group * length;
    // Less the first element: sums of small numbers, wherever the mean is.
    const float around = as_float(group_x[0]);
    float held[kHeld], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; i += kWidth) {
      const int position = (i / kWidth * threads + thread) * kWidth;
      if (position < length) load_vector<kWidth>(group_x + position, held + i);
#pragma unroll
      for (int j = i; j < i + kWidth; ++j) {
        held[j] = position < length ? held[j] - around : 0.0f;
        sum += held[j];
      }
    }
    const float distance = sum_of_team<kIsWarp>(sum, scratch) / length;
    float m2 = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; i += kWidth) {
      const int position = (i / kWidth * threads + thread) * kWidth;
#pragma unroll
      for (int j = i; j < i + kWidth; ++j) {
        held[j] -= distance;
        if (position < length) m2 += held[j] * held[j];
      }
    }
    const float group_rstd = 1.0f / sqrtf(sum_of_team<kIsWarp>(m2, scratch) / length + eps);
    if (thread == 0) {
      mean[group] = around + distance;
      mean_low[group] = (around - mean[group]) + distance;
      rstd[group] = group_rstd;
    }
    const int64_t first_channel = group % shape.groups * channels_per_group;
#pragma unroll
    for (int i = 0; i < kHeld; i += kWidth) {
      const int position = (i / kWidth * threads + thread) * kWidth;
      if (position >= length) continue;
      const int64_t channel = first_channel + static_cast<unsigned>(position) / spatial;
      const float scale = group_rstd * as_float(weight[channel]);
      const float row_bias = as_float(bias[channel]);
#pragma unroll
      for (int j = i; j < i + kWidth; ++j) held[j] = fmaf(held[j], scale, row_bias);
      store_vector<kWidth>(y + group * length + position, held + i);
    }
  }
}

// Which kernels a shape is worked on with.

enum class Plan {
  kSmall,     // a group a block or a warp, in one launch
  kParts,     // several blocks a group, a launch for each pass
  kStreamed,  // all blocks at one group after another: one launch, one pass over memory
};

struct Choice {
  Plan plan;
  int blocks;  // of a launch that streams
};

// How a launch streams: elements that are copied at once, chunks in shared memory, warps that take sums.
constexpr int kChunkBytes = 16 << 10;
constexpr int kChunk = kChunkBytes / sizeof(Element);
constexpr int kTeams = 4;  // of four warps; each holds one chunk in registers
constexpr int kForwardStages = 13;
constexpr int kForwardSumWarps = 8;
constexpr int kForwardShared = kForwardStages * kChunkBytes;
constexpr int kBackwardStages = 7;  // of x and dy each
constexpr int kBackwardSumWarps = sizeof(Element) == 2 ? 4 : 2;  // as many bytes of halves are twice the work
constexpr int kBackwardShared = 2 * kBackwardStages * kChunkBytes;
constexpr int kMaxBlocks = 160;
constexpr int kBesideRing = 3 << 10;  // bytes of shared memory for barriers and statistics

// Forward: groups up to this many elements fit the registers of a block.
constexpr int64_t kForwardSmall = 16384;
// Backward: a block that walks twice over its group is as fast as several launches up to about this many elements.
constexpr int64_t kBackwardSmall = 1024;
// Below this many bytes everything stays in L2 between two launches, and blocks that wait for each other cost more.
constexpr int64_t kStreamedBytes = int64_t{8} << 20;

inline int attribute_of(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Blocks of a launch that streams on a device; 0 where it cannot: bulk copies and their barriers are Hopper's, and the
// ring needs nearly all shared memory of a multiprocessor.
inline int streaming_blocks(int device, int shared_bytes) {
#ifdef __NVCC__
  if (device < 0 && cudaGetDevice(&device) != cudaSuccess) return 0;
  if (attribute_of(cudaDevAttrComputeCapabilityMajor, device) < 9) return 0;
  if (attribute_of(cudaDevAttrCooperativeLaunch, device) == 0) return 0;
  if (attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) < shared_bytes + kBesideRing) return 0;
  const int blocks = attribute_of(cudaDevAttrMultiProcessorCount, device);
  return blocks < kMaxBlocks ? blocks : kMaxBlocks;
#else
  (void)device, (void)shared_bytes;
  return 0;  // a compiler without Hopper's instructions, such as a host's
#endif
}

// `is_aligned`: all tensors begin at multiples of 16 bytes; `small`: elements of a group that is small; `stages`:
// chunks in a block's ring.
//
// A block's chunks of a group wait in its ring and registers until the whole group is there. One more than these hold,
// and nobody could ever go on: such groups are not streamed.
inline Choice choice_of(const Shape& shape, int64_t small, bool is_aligned, int stages, int shared_bytes, int device) {
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  if (group_length <= small) return {Plan::kSmall, 0};
  const bool is_cut = is_aligned && shape.spatial > 0 && shape.spatial % kChunk == 0;
  const int64_t bytes = shape.samples * shape.channels * shape.spatial * static_cast<int64_t>(sizeof(Element));
  if (is_cut && bytes >= kStreamedBytes) {
    const int blocks = streaming_blocks(device, shared_bytes);
    if (blocks > 0 && ceil_div(group_length / kChunk, blocks) < kTeams + stages) return {Plan::kStreamed, blocks};
  }
  return {Plan::kParts, 0};  // any device, any alignment, rows that chunks do not divide
}

// Floats of scratch memory for the words of a launch that streams.
inline int64_t streaming_words(const Shape& shape) {
  const int64_t of_group = shape.channels / shape.groups * (shape.spatial / kChunk);
  return 4 * shape.samples * shape.groups * (of_group < kMaxBlocks ? of_group : kMaxBlocks);
}

// Floats of scratch memory for the sums of a backward's chunks.
inline int64_t streaming_sums(const Shape& shape) {
  return 2 * kBackwardSumWarps * shape.samples * shape.channels * (shape.spatial / kChunk);
}

#ifdef __NVCC__  // Hopper's instructions; a host's compiler leaves them out, and nothing streams
// What the streaming kernels share: barriers in shared memory, bulk copies, words between multiprocessors. All of it is
// for compute capability 9.0 and above; other code never comes here (see plan.cuh).
//
// Every multiprocessor has one block, and every block a share of each group, so that no more than a few groups are in
// flight. A group is cut into chunks of kChunkBytes, and chunk c of the whole input belongs to block c % gridDim.x.
// One warp of a block copies its chunks, in order, into a ring of shared memory; some warps take sums of what arrives;
// teams of four warps take chunks into registers and wait there for what the whole group came to, then write. Blocks
// tell each other by one 16-byte word a block and group, which is its own flag: both halves of an unwritten one are
// kUnset, which no sum and no count ever is. One warp reads the words of a group and tells the block's teams.
//
// Nobody waits for a block that is not running: the launch is a cooperative one. A team may wait for a chunk's barrier
// by parity since sums are taken in order, and no chunk behind a team's last is a ring ahead (kTeams <= kStages).
// A group has no more chunks of one block than fit its ring and registers (choice_of).

constexpr int kTeam = 128;                      // threads that write a chunk
constexpr int kWordsPerLane = kMaxBlocks / 32;  // of a group, read by a warp
constexpr int kVectorBytes = 16;
constexpr int kPerVector = kVectorBytes / sizeof(Element);
constexpr int kChunkVectors = kChunkBytes / kVectorBytes;
constexpr int kVectors = kChunkVectors / kTeam;  // of a chunk, that a thread of a team holds
constexpr unsigned long long kUnset = ~0ull;

// A power of two above what of one block may be in flight.
constexpr int ring_of(int in_flight) {
  int size = 8;
  while (size <= in_flight) size *= 2;
  return size;
}

// How the input is cut; all chunks have kChunk elements.
struct Chunks {
  int groups;             // over all samples
  int of_group, of_row, channels_per_group, groups_per_sample;

  __device__ int channel(int group, int chunk_of_group) const {
    return group % groups_per_sample * channels_per_group + chunk_of_group / of_row;
  }
};

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  uint32_t is_over = 0;
  while (!is_over) {
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(is_over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

// Gives a place of the ring back, by all lanes of a warp that has read it. The next copy into it is the async proxy's:
// without the fence, loads that were issued and have not returned may still see what it writes.
__device__ __forceinline__ void release_place(uint64_t* empty) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// Copies a chunk into shared memory; its bytes count at the barrier. With kEvictFirst they leave L2 first.
template <bool kEvictFirst>
__device__ __forceinline__ void bulk_load(void* to, const Element* from, uint64_t* barrier) {
  if constexpr (kEvictFirst) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_address(to)),
        "l"(from), "n"(kChunkBytes), "r"(shared_address(barrier)), "l"(policy)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "n"(kChunkBytes), "r"(shared_address(barrier))
                 : "memory");
  }
}

__device__ __forceinline__ ulonglong2 read_word(const ulonglong2* word) {
  ulonglong2 value;
  asm volatile("ld.relaxed.gpu.global.v2.u64 { %0, %1 }, [%2];" : "=l"(value.x), "=l"(value.y) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void write_word(ulonglong2* word, unsigned long long first, unsigned long long second) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], { %1, %2 };" ::"l"(word), "l"(first), "l"(second) : "memory");
}

// The words of a group, lane by lane, as soon as all are there; words that there are none of are 0.
__device__ __forceinline__ void read_words(const ulonglong2* words, int count, int lane,
                                           ulonglong2 (&values)[kWordsPerLane]) {
  bool are_set;
  do {
    are_set = true;
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) {
      values[i] = {0, 0};
      if (lane + 32 * i < count) values[i] = read_word(words + lane + 32 * i);
    }
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) are_set &= values[i].x != kUnset && values[i].y != kUnset;
  } while (!are_set);
  __syncwarp();
}

// Barriers of a block: chunks that arrived, places that are free again, groups whose words have been read.
template <int kStages, int kRing>
struct Barriers {
  uint64_t full[kStages], empty[kStages], ready[kRing];

  // By all threads of the block.
  __device__ void init(int readers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        barrier_init(full + i, 1);
        barrier_init(empty + i, readers);
      }
      for (int i = 0; i < kRing; ++i) barrier_init(ready + i, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
};

// Whether this warp is the last of `warps` to have written its part of a group.
__device__ __forceinline__ bool is_last_warp(int* arrived, int warps, int lane) {
  int before = 0;
  if (lane == 0) {
    __threadfence_block();
    before = atomicAdd(arrived, 1);
  }
  before = __shfl_sync(kAllLanes, before, 0);
  if (before != warps - 1) return false;
  __threadfence_block();
  if (lane == 0) *arrived = 0;
  return true;
}

namespace streamed_forward {

constexpr int kSumWarps = kForwardSumWarps;
constexpr int kSumThreads = kSumWarps * 32;
constexpr int kStages = kForwardStages;
constexpr int kThreads = 64 + kSumThreads + kTeams * kTeam;
constexpr int kRing = ring_of(kTeams + kStages);

// What of a group's statistics a team needs: the mean in two floats, so that x - mean is exact far from zero.
struct Statistics {
  float mean, mean_low, rstd;
};

struct Shared {
  Barriers<kStages, kRing> barriers;
  float2 of_warp[kRing][kSumWarps];
  Statistics statistics[kRing];
  int arrived[kRing];
};

static_assert(sizeof(Shared) <= kBesideRing && kTeams <= kStages, "see plan.cuh and streaming.cuh");

// Reads the words of each of the block's groups, and tells the teams.
__device__ inline void combine(const Chunks& chunks, int mine, float eps, const ulonglong2* words, Shared& shared,
                               float* mean, float* rstd, float* mean_low) {
  const int lane = threadIdx.x % 32;
  const int blocks = gridDim.x;
  const bool shares_all = chunks.of_group >= blocks;
  const int parts = shares_all ? blocks : chunks.of_group;
  for (int local = 0; local < (shares_all ? chunks.groups : mine); ++local) {
    const int group = shares_all ? local : (blockIdx.x + local * blocks) / chunks.of_group;
    ulonglong2 values[kWordsPerLane];
    read_words(words + static_cast<int64_t>(group) * parts, parts, lane, values);
    // Means of parts as distances from the first one's: small numbers, wherever the mean is.
    const double around = __shfl_sync(kAllLanes, __longlong_as_double(values[0].x), 0);
    float sum = 0.0f, m2 = 0.0f;
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) {
      const float count = static_cast<float>(static_cast<uint32_t>(values[i].y >> 32));  // chunks
      const float distance = static_cast<float>(__longlong_as_double(values[i].x) - around);
      sum += count * distance;
      m2 += __uint_as_float(static_cast<uint32_t>(values[i].y)) + count * distance * distance * kChunk;
    }
    sum = sum_of_lanes(sum);
    m2 = sum_of_lanes(m2);
    const float distance = sum / chunks.of_group;
    const float length = static_cast<float>(chunks.of_group) * kChunk;
    // NaN stays NaN: only what rounding has pushed below zero is cut.
    const float variance = m2 / length - distance * distance;
    if (lane == 0) {
      const double exact_mean = around + distance;
      const float high = static_cast<float>(exact_mean);
      const Statistics found = {high, static_cast<float>(exact_mean - high),
                                1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + eps)};
      shared.statistics[local % kRing] = found;
      barrier_arrive(shared.barriers.ready + local % kRing);
      if (static_cast<int64_t>(group) * chunks.of_group % blocks == blockIdx.x) {
        mean[group] = found.mean;
        rstd[group] = found.rstd;
        mean_low[group] = found.mean_low;
      }
    }
    __syncwarp();
  }
}

// Takes the moments of each chunk, each thread of the same places, and tells the other blocks where a group ends.
__device__ inline void take_moments(const Chunks& chunks, int mine, const Vector* ring, Shared& shared,
                                    ulonglong2* words) {
  constexpr int kHeldVectors = kChunkVectors / kSumThreads;
  constexpr int kHeld = kHeldVectors * kPerVector;
  const int thread = threadIdx.x - 64;
  const int lane = threadIdx.x % 32;
  const int blocks = gridDim.x;
  const bool shares_all = chunks.of_group >= blocks;
  int group = blockIdx.x / chunks.of_group;
  int count = 0;  // chunks of the group so far
  float around = 0.0f;
  float mean = 0.0f;  // less `around`, the group's first element in this block
  float m2 = 0.0f;
  for (int i = 0; i < mine; ++i) {
    const int stage = i % kStages;
    const int chunk = blockIdx.x + i * blocks;
    const int group_after = (chunk + blocks) / chunks.of_group;
    const Vector* from = ring + stage * kChunkVectors;
    barrier_wait(shared.barriers.full + stage, i / kStages & 1);
    if (count == 0) around = as_float(*reinterpret_cast<const Element*>(from));
    float held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeldVectors; ++j) {
      Format<Element>::unpack(from[j * kSumThreads + thread], held + j * kPerVector);
    }
    release_place(shared.barriers.empty + stage);
    float own_mean = 0.0f;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) held[j] -= around;
#pragma unroll
    for (int j = 0; j < kHeld; j += 4) own_mean += (held[j] + held[j + 1]) + (held[j + 2] + held[j + 3]);
    own_mean *= 1.0f / kHeld;
    float own_m2 = 0.0f;
#pragma unroll
    for (int j = 0; j < kHeld; j += 4) {
      const float a = held[j] - own_mean;
      const float b = held[j + 1] - own_mean;
      const float c = held[j + 2] - own_mean;
      const float d = held[j + 3] - own_mean;
      own_m2 += (a * a + b * b) + (c * c + d * d);
    }
    // Chan, Golub and LeVeque 1979: `count` chunks and one.
    const float share = __frcp_rn(static_cast<float>(count + 1));
    const float distance = own_mean - mean;
    mean = count > 0 ? mean + distance * share : own_mean;
    m2 = count > 0 ? m2 + own_m2 + distance * distance * (kHeld * count * share) : own_m2;
    ++count;
    if (i + 1 < mine && group_after == group) continue;

    float half = 0.5f * kHeld * count;  // of the elements of each of two lanes
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const float apart = __shfl_xor_sync(kAllLanes, mean, offset) - mean;
      m2 += __shfl_xor_sync(kAllLanes, m2, offset) + apart * apart * half;
      mean += 0.5f * apart;
      half *= 2.0f;
    }
    const int place = (shares_all ? group : i) % kRing;
    if (lane == 0) shared.of_warp[place][thread / 32] = {mean, m2};
    if (is_last_warp(shared.arrived + place, kSumWarps, lane)) {
      float2 moments = shared.of_warp[place][lane % kSumWarps];
#pragma unroll
      for (int offset = 1; offset < kSumWarps; offset *= 2) {
        const float apart = __shfl_xor_sync(kAllLanes, moments.x, offset) - moments.x;
        moments.y += __shfl_xor_sync(kAllLanes, moments.y, offset) + apart * apart * half;
        moments.x += 0.5f * apart;
        half *= 2.0f;
      }
      if (lane == 0) {
        const int parts = shares_all ? blocks : chunks.of_group;
        const int part = shares_all ? blockIdx.x : chunk - group * chunks.of_group;
        write_word(words + static_cast<int64_t>(group) * parts + part,
                   __double_as_longlong(static_cast<double>(around) + moments.x),
                   static_cast<unsigned long long>(count) << 32 | __float_as_uint(moments.y));
      }
    }
    count = 0;
    group = group_after;
  }
}

// Normalises every kTeams-th chunk of the block.
__device__ inline void normalise_chunks(const Chunks& chunks, int mine, const Vector* ring, Shared& shared,
                                        const Weight* weight, const Weight* bias, Element* y) {
  const int team = (threadIdx.x - 64 - kSumThreads) / kTeam;
  const int thread = (threadIdx.x - 64 - kSumThreads) % kTeam;
  for (int i = team; i < mine; i += kTeams) {
    const int stage = i % kStages;
    const int chunk = blockIdx.x + i * gridDim.x;
    const int group = chunk / chunks.of_group;
    const int channel = chunks.channel(group, chunk - group * chunks.of_group);
    const float row_weight = as_float(weight[channel]);
    const float row_bias = as_float(bias[channel]);
    const Vector* from = ring + stage * kChunkVectors;
    Vector held[kVectors];
    barrier_wait(shared.barriers.full + stage, i / kStages & 1);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) held[j] = from[j * kTeam + thread];
    release_place(shared.barriers.empty + stage);
    const int local = chunks.of_group >= static_cast<int>(gridDim.x) ? group : i;
    barrier_wait(shared.barriers.ready + local % kRing, local / kRing & 1);
    const Statistics found = shared.statistics[local % kRing];
    const float scale = found.rstd * row_weight;
    Vector* to = reinterpret_cast<Vector*>(y + static_cast<int64_t>(chunk) * kChunk) + thread;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      float values[kPerVector];
      Format<Element>::unpack(held[j], values);
#pragma unroll
      for (int k = 0; k < kPerVector; ++k) {
        values[k] = fmaf((values[k] - found.mean) - found.mean_low, scale, row_bias);
      }
      __stcs(to + j * kTeam, Format<Element>::packed(values));
    }
  }
}

// Grid: a block a multiprocessor. `words`: kUnset, for each group as many as blocks have chunks of it.
__global__ void __launch_bounds__(kThreads, 1)
    stream_forward(Chunks chunks, const Element* x, const Weight* weight, const Weight* bias, float eps, Element* y,
                   float* mean, float* rstd, float* mean_low, ulonglong2* words) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) Vector ring[];
  __shared__ Shared shared;
  const int blocks = gridDim.x;
  const int mine = (chunks.groups * chunks.of_group - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  if (mine == 0) return;
  if (threadIdx.x < kRing) shared.arrived[threadIdx.x] = 0;
  shared.barriers.init(kSumWarps + kTeam / 32);
  if (threadIdx.x < 32) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < mine; ++i) {
      const int stage = i % kStages;
      barrier_wait(shared.barriers.empty + stage, (i / kStages & 1) ^ 1);
      barrier_expect(shared.barriers.full + stage, kChunkBytes);
      bulk_load<true>(ring + stage * kChunkVectors, x + static_cast<int64_t>(blockIdx.x + i * blocks) * kChunk,
                      shared.barriers.full + stage);
    }
  } else if (threadIdx.x < 64) {
    combine(chunks, mine, eps, words, shared, mean, rstd, mean_low);
  } else if (threadIdx.x < 64 + kSumThreads) {
    take_moments(chunks, mine, ring, shared, words);
  } else {
    normalise_chunks(chunks, mine, ring, shared, weight, bias, y);
  }
#else
  __trap();  // code for older devices: never chosen
#endif
}

}  // namespace streamed_forward

namespace streamed_backward {

constexpr int kSumWarps = kBackwardSumWarps;
constexpr int kSumThreads = kSumWarps * 32;
constexpr int kStages = kBackwardStages;
constexpr int kThreads = 64 + kSumThreads + kTeams * kTeam;
constexpr int kRing = ring_of(kTeams + kStages);

// What a team needs of a group: dx = dy * weight * rstd + (x - mean) * slope + offset.
struct Coefficients {
  float slope, offset, rstd, mean, mean_low;
};

struct Shared {
  Barriers<kStages, kRing> barriers;
  float2 of_warp[kRing][kSumWarps];
  Coefficients coefficients[kRing];
  int arrived[kRing];
};

static_assert(sizeof(Shared) <= kBesideRing && kTeams <= kStages, "see plan.cuh and streaming.cuh");

// Reads the words of each of the block's groups, and tells the teams.
__device__ inline void combine(const Chunks& chunks, int mine, const float* mean, const float* rstd,
                               const float* mean_low, const ulonglong2* words, Shared& shared) {
  const int lane = threadIdx.x % 32;
  const int blocks = gridDim.x;
  const bool shares_all = chunks.of_group >= blocks;
  const int parts = shares_all ? blocks : chunks.of_group;
  const double length = static_cast<double>(chunks.of_group) * kChunk;
  const float per_element = static_cast<float>(1.0 / length);
  for (int local = 0; local < (shares_all ? chunks.groups : mine); ++local) {
    const int group = shares_all ? local : (blockIdx.x + local * blocks) / chunks.of_group;
    Coefficients found = {0.0f, 0.0f, rstd[group], mean[group], mean_low[group]};
    ulonglong2 values[kWordsPerLane];
    read_words(words + static_cast<int64_t>(group) * parts, parts, lane, values);
    double dy = 0.0, dy_xhat = 0.0;
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) {
      dy += __longlong_as_double(values[i].x);
      dy_xhat += __longlong_as_double(values[i].y);
    }
    dy = sum_of_lanes(dy);
    dy_xhat = sum_of_lanes(dy_xhat);
    if (lane == 0) {
      found.offset = -found.rstd * per_element * static_cast<float>(dy);
      found.slope = -found.rstd * found.rstd * per_element * static_cast<float>(dy_xhat);
      shared.coefficients[local % kRing] = found;
      barrier_arrive(shared.barriers.ready + local % kRing);
    }
    __syncwarp();
  }
}

// Sums dy and dy * xhat of each chunk, and weighted over the block's part of each group.
__device__ inline void take_sums(const Chunks& chunks, int mine, const Vector* ring, const Weight* weight,
                                 const float* mean, const float* rstd, const float* mean_low, Shared& shared,
                                 RowSums* sums, ulonglong2* words) {
  constexpr int kHeld = kChunkVectors / kSumThreads;
  constexpr int kPiece = 4;  // registers for so many vectors at a time
  const int thread = threadIdx.x - 64;
  const int lane = threadIdx.x % 32;
  const int blocks = gridDim.x;
  const bool shares_all = chunks.of_group >= blocks;
  int group = blockIdx.x / chunks.of_group;
  bool is_first = true;
  // Those of the next group are read while this one's are in use.
  float next_mean = mean[group];
  float next_low = mean_low[group];
  float next_rstd = rstd[group];
  float group_mean = 0.0f, group_low = 0.0f, group_rstd = 0.0f, group_dy = 0.0f, group_dy_xhat = 0.0f;
  for (int i = 0; i < mine; ++i) {
    const int stage = i % kStages;
    const int chunk = blockIdx.x + i * blocks;
    const int group_after = (chunk + blocks) / chunks.of_group;
    const int chunk_of_group = chunk - group * chunks.of_group;
    const float row_weight = as_float(weight[chunks.channel(group, chunk_of_group)]);
    if (is_first) {
      group_mean = next_mean;
      group_low = next_low;
      group_rstd = next_rstd;
      const int next = shares_all ? group + 1 : group_after;
      const int known = next < chunks.groups ? next : group;
      next_mean = mean[known];
      next_low = mean_low[known];
      next_rstd = rstd[known];
      is_first = false;
    }
    const Vector* of_x = ring + stage * (2 * kChunkVectors);
    const Vector* of_dy = of_x + kChunkVectors;
    barrier_wait(shared.barriers.full + stage, i / kStages & 1);
    RowSums own = {0.0f, 0.0f};
#pragma unroll
    for (int piece = 0; piece < kHeld; piece += kPiece) {
      Vector x[kPiece];
      Vector dy[kPiece];
#pragma unroll
      for (int j = 0; j < kPiece; ++j) {
        x[j] = of_x[(piece + j) * kSumThreads + thread];
        dy[j] = of_dy[(piece + j) * kSumThreads + thread];
      }
      if (piece + kPiece == kHeld) release_place(shared.barriers.empty + stage);
#pragma unroll
      for (int j = 0; j < kPiece; ++j) {
        float values[kPerVector], gradients[kPerVector];
        Format<Element>::unpack(x[j], values);
        Format<Element>::unpack(dy[j], gradients);
#pragma unroll
        for (int k = 0; k < kPerVector; ++k) values[k] = gradients[k] * ((values[k] - group_mean) - group_low);
#pragma unroll
        for (int k = 0; k < kPerVector; k += 4) {
          own.dy += (gradients[k] + gradients[k + 1]) + (gradients[k + 2] + gradients[k + 3]);
          own.dy_xhat += (values[k] + values[k + 1]) + (values[k + 2] + values[k + 3]);
        }
      }
    }
    own.dy_xhat *= group_rstd;
    group_dy += row_weight * own.dy;
    group_dy_xhat += row_weight * own.dy_xhat;
    own = {sum_of_lanes(own.dy), sum_of_lanes(own.dy_xhat)};
    if (lane == 0) sums[static_cast<int64_t>(chunk) * kSumWarps + thread / 32] = own;
    if (i + 1 < mine && group_after == group) continue;

    group_dy = sum_of_lanes(group_dy);
    group_dy_xhat = sum_of_lanes(group_dy_xhat);
    const int place = (shares_all ? group : i) % kRing;
    if (lane == 0) shared.of_warp[place][thread / 32] = {group_dy, group_dy_xhat};
    if (is_last_warp(shared.arrived + place, kSumWarps, lane) && lane == 0) {
      double dy = 0.0, dy_xhat = 0.0;
#pragma unroll
      for (int warp = 0; warp < kSumWarps; ++warp) {
        dy += shared.of_warp[place][warp].x;
        dy_xhat += shared.of_warp[place][warp].y;
      }
      const int parts = shares_all ? blocks : chunks.of_group;
      const int part = shares_all ? blockIdx.x : chunk_of_group;
      write_word(words + static_cast<int64_t>(group) * parts + part, __double_as_longlong(dy),
                 __double_as_longlong(dy_xhat));
    }
    group_dy = 0.0f;
    group_dy_xhat = 0.0f;
    is_first = true;
    group = group_after;
  }
}

// Writes dx of every kTeams-th chunk of the block.
__device__ inline void write_gradients(const Chunks& chunks, int mine, const Vector* ring, const Weight* weight,
                                       Shared& shared, Element* dx) {
  const int team = (threadIdx.x - 64 - kSumThreads) / kTeam;
  const int thread = (threadIdx.x - 64 - kSumThreads) % kTeam;
  for (int i = team; i < mine; i += kTeams) {
    const int stage = i % kStages;
    const int chunk = blockIdx.x + i * gridDim.x;
    const int group = chunk / chunks.of_group;
    const float row_weight = as_float(weight[chunks.channel(group, chunk - group * chunks.of_group)]);
    const Vector* from = ring + stage * (2 * kChunkVectors);
    Vector x[kVectors];
    Vector dy[kVectors];
    barrier_wait(shared.barriers.full + stage, i / kStages & 1);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      x[j] = from[j * kTeam + thread];
      dy[j] = from[kChunkVectors + j * kTeam + thread];
    }
    release_place(shared.barriers.empty + stage);
    const int local = chunks.of_group >= static_cast<int>(gridDim.x) ? group : i;
    barrier_wait(shared.barriers.ready + local % kRing, local / kRing & 1);
    const Coefficients found = shared.coefficients[local % kRing];
    const float scale = found.rstd * row_weight;
    Vector* to = reinterpret_cast<Vector*>(dx + static_cast<int64_t>(chunk) * kChunk) + thread;
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      float values[kPerVector], gradients[kPerVector];
      Format<Element>::unpack(x[j], values);
      Format<Element>::unpack(dy[j], gradients);
#pragma unroll
      for (int k = 0; k < kPerVector; ++k) {
        const float centred = (values[k] - found.mean) - found.mean_low;
        values[k] = fmaf(gradients[k], scale, fmaf(centred, found.slope, found.offset));
      }
      __stcs(to + j * kTeam, Format<Element>::packed(values));
    }
  }
}

// Grid: a block a multiprocessor. `words` as in the forward; `sums`: of each chunk, for each warp that sums.
__global__ void __launch_bounds__(kThreads, 1)
    stream_backward(Chunks chunks, const Element* dy, const Element* x, const Weight* weight, const float* mean,
                    const float* rstd, const float* mean_low, Element* dx, RowSums* sums, ulonglong2* words) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) Vector ring[];
  __shared__ Shared shared;
  const int blocks = gridDim.x;
  const int mine = (chunks.groups * chunks.of_group - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  if (mine == 0) return;
  if (threadIdx.x < kRing) shared.arrived[threadIdx.x] = 0;
  shared.barriers.init(kSumWarps + kTeam / 32);
  if (threadIdx.x < 32) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < mine; ++i) {
      const int stage = i % kStages;
      const int64_t start = static_cast<int64_t>(blockIdx.x + i * blocks) * kChunk;
      Vector* to = ring + stage * (2 * kChunkVectors);
      barrier_wait(shared.barriers.empty + stage, (i / kStages & 1) ^ 1);
      barrier_expect(shared.barriers.full + stage, 2 * kChunkBytes);
      bulk_load<false>(to, x + start, shared.barriers.full + stage);
      bulk_load<false>(to + kChunkVectors, dy + start, shared.barriers.full + stage);
    }
  } else if (threadIdx.x < 64) {
    combine(chunks, mine, mean, rstd, mean_low, words, shared);
  } else if (threadIdx.x < 64 + kSumThreads) {
    take_sums(chunks, mine, ring, weight, mean, rstd, mean_low, shared, sums, words);
  } else {
    write_gradients(chunks, mine, ring, weight, shared, dx);
  }
#else
  __trap();  // code for older devices: never chosen
#endif
}

// Grid (channels): adds the sums of a channel's chunks over all samples, in a fixed order.
__global__ void __launch_bounds__(1024)
    affine_gradients_of_chunks(const RowSums* sums, int64_t samples, int64_t channels, int64_t sums_per_row,
                               Weight* dweight, Weight* dbias) {
  __shared__ double scratch[kMaxWarps];
  double dy = 0.0, dy_xhat = 0.0;
  for (int64_t i = threadIdx.x; i < samples * sums_per_row; i += blockDim.x) {
    const int64_t row = i / sums_per_row * channels + blockIdx.x;
    const RowSums one = sums[row * sums_per_row + i % sums_per_row];
    dy += one.dy;
    dy_xhat += one.dy_xhat;
  }
  dy = block_reduce(dy, 0.0, scratch, Add());
  dy_xhat = block_reduce(dy_xhat, 0.0, scratch, Add());
  if (threadIdx.x != 0) return;
  if (dbias != nullptr) put(dbias + blockIdx.x, static_cast<float>(dy));
  if (dweight != nullptr) put(dweight + blockIdx.x, static_cast<float>(dy_xhat));
}

}  // namespace streamed_backward

inline Chunks chunks_of(const Shape& shape) {
  const int of_row = static_cast<int>(shape.spatial / kChunk);
  const int channels_per_group = static_cast<int>(shape.channels / shape.groups);
  return {static_cast<int>(shape.samples * shape.groups), channels_per_group * of_row, of_row, channels_per_group,
          static_cast<int>(shape.groups)};
}

// Whether a kernel was compiled for devices that have what it needs, and not for older ones, where it does nothing.
template <typename Kernel>
bool is_compiled(Kernel* kernel) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.ptxVersion >= 90;
}

// Clears the words and launches a block a multiprocessor, all of which run at the same time or none.
template <typename... Parameters>
void launch_streaming(void (*kernel)(Parameters...), int blocks, int threads, int shared_bytes, ulonglong2* words,
                      const Chunks& chunks, std::common_type_t<Parameters>... arguments) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  const size_t parts = std::min(chunks.of_group, blocks);
  C10_CUDA_CHECK(cudaMemsetAsync(words, 0xff, sizeof(ulonglong2) * chunks.groups * parts, stream));
  C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                                             pointers, shared_bytes, stream));
}
#endif

float* floats(const torch::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; }

// mean and rstd (samples, groups) into statistics, then y: a group is cut into parts, one block each.
void normalise(const Element* x, const Weight* weight, const Weight* bias,
               const Shape& shape, float eps, Element* y, const torch::Tensor& statistics) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  const int64_t groups = shape.samples * shape.groups, rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  const int64_t group_length = channels_per_group * shape.spatial;
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (rows * shape.spatial == 0) return;
  float* const mean = floats(statistics);
  float* const rstd = mean + groups;
  const Parts parts = parts_of(group_length);
  const int64_t count = parts.count;
  auto moments = torch::empty({groups * count, 3}, statistics.options());
  const auto group_moments = by_vector(group_length, x) ? ::group_moments<kVectorWidth> : ::group_moments<1>;
  group_moments<<<grid_for(groups * count), threads_for(group_length, kThreads), 0, stream>>>(
      x, groups, group_length, parts, eps, reinterpret_cast<Moments*>(floats(moments)), mean, rstd);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  if (count > 1) {
    merge_moments<<<grid_for(groups), kWarpSize, 0, stream>>>(reinterpret_cast<Moments*>(floats(moments)), groups,
                                                              group_length, count, eps, mean, rstd);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  if (shape.spatial < kShortRow) {
    normalise_elements<<<grid_for(ceil_div(rows * shape.spatial, kThreads)), kThreads, 0, stream>>>(
        x, weight, bias, mean, rstd, rows, shape.channels, channels_per_group, shape.spatial, y);
  } else {
    const Parts tiles = tiles_of(shape.spatial);
    const auto normalise_rows = by_vector(shape.spatial, x, y) ? ::normalise_rows<kVectorWidth> : ::normalise_rows<1>;
    normalise_rows<<<grid_for(rows * tiles.count), threads, 0, stream>>>(
        x, weight, bias, mean, rstd, rows, shape.channels, channels_per_group, shape.spatial, tiles, y);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// Where gradients go; null where one is not wanted.
struct Gradients {
  Element* x;
  Weight *weight, *bias;  // (channels)
};

void add_affine_gradients(const RowSums* row_sums, const Shape& shape, const Gradients& gradients) {
  if (gradients.weight == nullptr && gradients.bias == nullptr) return;
  affine_gradients<<<grid_for(ceil_div(shape.channels, kWarpSize)), dim3(kWarpSize, kAffineLanes), 0,
                     at::cuda::getCurrentCUDAStream()>>>(row_sums, shape.samples, shape.channels, gradients.weight,
                                                         gradients.bias);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void differentiate_groups(const Element* dy, const Element* x, const Weight* weight,
                          const torch::Tensor& statistics, const Shape& shape, const Gradients& gradients) {
  const int64_t groups = shape.samples * shape.groups, rows = shape.samples * shape.channels;
  auto scratch = torch::empty({rows, 2}, statistics.options());
  RowSums* const row_sums = reinterpret_cast<RowSums*>(floats(scratch));
  if (groups > 0) {
    const bool wide = by_vector(shape.spatial, dy, x, gradients.x);
    const auto group_gradients = wide ? ::group_gradients<kVectorWidth> : ::group_gradients<1>;
    const unsigned threads = threads_for(shape.channels / shape.groups * shape.spatial, kGroupThreads);
    group_gradients<<<grid_for(groups), threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        dy, x, weight, floats(statistics), floats(statistics) + groups, shape, row_sums, gradients.x);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  add_affine_gradients(row_sums, shape, gradients);
}

void differentiate_in_parts(const Element* dy, const Element* x, const Weight* weight,
                            const torch::Tensor& statistics, const Shape& shape, const Gradients& gradients) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  const int64_t groups = shape.samples * shape.groups, rows = shape.samples * shape.channels;
  const int64_t channels = shape.channels, channels_per_group = channels / shape.groups, spatial = shape.spatial;
  const unsigned threads = threads_for(spatial, kThreads);
  const Parts parts = row_parts(spatial), tiles = tiles_of(spatial);
  const float* const mean = floats(statistics);
  const float* const rstd = mean + groups;
  Element* const dx = gradients.x;
  auto scratch = torch::empty({rows * (1 + parts.count) + groups, 2}, statistics.options());
  RowSums* const row_sums = reinterpret_cast<RowSums*>(floats(scratch));
  RowSums* const part_sums = row_sums + rows;
  GroupMeans* const means = reinterpret_cast<GroupMeans*>(part_sums + rows * parts.count);
  if (groups > 0) {
    if (spatial < kShortRow) {
      short_row_sums<<<grid_for(ceil_div(rows, kThreads)), kThreads, 0, stream>>>(
          dy, x, mean, rstd, rows, channels, channels_per_group, spatial, part_sums);
    } else {
      const auto row_part_sums = by_vector(spatial, dy, x) ? ::row_part_sums<kVectorWidth> : ::row_part_sums<1>;
      row_part_sums<<<grid_for(rows * parts.count), threads, 0, stream>>>(
          dy, x, mean, rstd, rows, channels, channels_per_group, spatial, parts, part_sums);
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    group_means<<<grid_for(groups), threads_for(4 * channels_per_group, kThreads), 0, stream>>>(
        part_sums, weight, groups, channels, channels_per_group, spatial, parts.count, row_sums, means);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (dx != nullptr && spatial > 0) {
      if (spatial < kShortRow) {
        input_gradient_elements<<<grid_for(ceil_div(rows * spatial, kThreads)), kThreads, 0, stream>>>(
            dy, x, weight, mean, rstd, means, rows, channels, channels_per_group, spatial, dx);
      } else {
        const bool wide = by_vector(spatial, dy, x, dx);
        const auto input_gradient_rows = wide ? ::input_gradient_rows<kVectorWidth> : ::input_gradient_rows<1>;
        input_gradient_rows<<<grid_for(rows * tiles.count), threads, 0, stream>>>(
            dy, x, weight, mean, rstd, means, rows, channels, channels_per_group, spatial, tiles,
            dx);
      }
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
  }
  add_affine_gradients(row_sums, shape, gradients);
}

Element* elements(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<Element*>(tensor.data_ptr()) : nullptr;
}
Weight* weights(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<Weight*>(tensor.data_ptr()) : nullptr;
}

void check(const torch::Tensor& tensor, const torch::Tensor& like, torch::IntArrayRef sizes, const char* name) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == like.device() && tensor.scalar_type() == like.scalar_type() &&
              tensor.is_contiguous() && tensor.sizes() == sizes,
              name, " must be contiguous, of shape ", sizes, " and of the dtype and on the device that go with it");
}

Shape shape_of(const torch::Tensor& x, const torch::Tensor& weight, int64_t groups) {
  TORCH_CHECK(x.dim() >= 2, "x must be (batch, channels, *spatial), got ", x.dim(), " dimension(s)");
  const int64_t channels = x.size(1);
  TORCH_CHECK(groups > 0 && channels > 0 && channels % groups == 0, channels, " channels cannot be divided into ",
              groups, " groups");
  check(x, x, x.sizes(), "x");
  check(weight, weight, {channels}, "weight");
  TORCH_CHECK(x.device() == weight.device(), "weight must be on the device of x");
  int64_t spatial = 1;
  for (int64_t axis = 2; axis < x.dim(); ++axis) spatial *= x.size(axis);
  return {x.size(0), channels, groups, spatial};
}

template <int kHeld, int kWidth>
void normalise_held(const Element* x, const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                    Element* y, float* mean) {
  const auto stream = at::cuda::getCurrentCUDAStream();
  const int64_t groups = shape.samples * shape.groups;
  const int64_t length = shape.channels / shape.groups * shape.spatial;
  const bool by_warps = length <= kHeld * kWarpSize;
  const auto normalise_held_groups =
      by_warps ? ::normalise_held_groups<kHeld, kWidth, true> : ::normalise_held_groups<kHeld, kWidth, false>;
  const unsigned blocks = grid_for(by_warps ? ceil_div(groups, kWarpsPerBlock) : groups);
  const unsigned threads = kWarpSize * (by_warps ? kWarpsPerBlock : ceil_div(ceil_div(length, kHeld), kWarpSize));
  normalise_held_groups<<<blocks, threads, 0, stream>>>(x, weight, bias, shape, eps, y, mean, mean + groups,
                                                        mean + 2 * groups);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// y like x; statistics (3, batch, groups): mean, 1 / sqrt(variance + eps), and what the mean's float lacks, or zeros:
// the backward may run something else.
std::vector<torch::Tensor> forward(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups,
                                   double eps) {
  const Shape shape = shape_of(x, weight, groups);
  check(bias, weight, {shape.channels}, "bias");
  const c10::cuda::CUDAGuard guard(x.device());
  auto y = torch::empty_like(x);
  auto statistics = torch::empty({3, shape.samples, groups}, x.options().dtype(torch::kFloat));
  if (x.numel() == 0) return {y, statistics};
  float* const mean = floats(statistics);
  const int64_t all_groups = shape.samples * groups, length = x.numel() / all_groups;
  const bool is_aligned = by_vector(0, elements(x), elements(y));
  const Choice choice = choice_of(shape, kForwardSmall, is_aligned, kForwardStages, kForwardShared, x.get_device());
  if (choice.plan == Plan::kSmall) {
    // Few elements a thread where there are threads enough: more of them wait for memory at the same time.
    const bool wide = by_vector(shape.spatial, elements(x), elements(y)), few = length <= 4 * kMostThreads;
    const auto normalise_small = wide ? few ? normalise_held<kWide, kWide> : normalise_held<kMostHeld, kWide>
                                      : few ? normalise_held<4, 1> : normalise_held<kMostHeld, 1>;
    normalise_small(elements(x), weights(weight), weights(bias), shape, eps, elements(y), mean);
    return {y, statistics};
  }
#ifdef __NVCC__
  if (choice.plan == Plan::kStreamed && is_compiled(streamed_forward::stream_forward)) {
    const Chunks chunks = chunks_of(shape);
    auto words = torch::empty({streaming_words(shape)}, statistics.options());
    ulonglong2* const to = reinterpret_cast<ulonglong2*>(floats(words));
    launch_streaming(streamed_forward::stream_forward, choice.blocks, streamed_forward::kThreads, kForwardShared, to,
                     chunks, chunks, elements(x), weights(weight), weights(bias), static_cast<float>(eps), elements(y),
                     mean, mean + all_groups, mean + 2 * all_groups, to);
    return {y, statistics};
  }
#endif
  const size_t bytes = all_groups * sizeof(float);
  C10_CUDA_CHECK(cudaMemsetAsync(mean + 2 * all_groups, 0, bytes, at::cuda::getCurrentCUDAStream()));
  normalise(elements(x), weights(weight), weights(bias), shape, eps, elements(y), statistics);
  return {y, statistics};
}

// The wanted ones of dx like x, dweight and dbias (channels).
std::vector<torch::Tensor> backward(torch::Tensor dy, torch::Tensor x, torch::Tensor weight, torch::Tensor statistics,
                                    std::vector<bool> wants) {
  const Shape shape = shape_of(x, weight, statistics.size(2));
  check(dy, x, x.sizes(), "the gradient of y");
  const c10::cuda::CUDAGuard guard(x.device());
  auto dx = wants[0] ? torch::empty_like(x) : torch::Tensor();
  auto dweight = wants[1] ? torch::empty_like(weight) : torch::Tensor();
  auto dbias = wants[2] ? torch::empty_like(weight) : torch::Tensor();
  const Gradients gradients = {elements(dx), weights(dweight), weights(dbias)};
  const bool is_aligned = by_vector(0, elements(x), elements(dy), elements(dx));
  const Choice choice = choice_of(shape, kBackwardSmall, is_aligned, kBackwardStages, kBackwardShared, x.get_device());
#ifdef __NVCC__
  if (choice.plan == Plan::kStreamed && wants[0] && is_compiled(streamed_backward::stream_backward)) {
    const Chunks chunks = chunks_of(shape);
    const int64_t all_groups = shape.samples * shape.groups;
    const float* const mean = floats(statistics);
    auto scratch = torch::empty({streaming_words(shape) + streaming_sums(shape)}, statistics.options());
    ulonglong2* const words = reinterpret_cast<ulonglong2*>(floats(scratch));
    RowSums* const sums = reinterpret_cast<RowSums*>(floats(scratch) + streaming_words(shape));
    launch_streaming(streamed_backward::stream_backward, choice.blocks, streamed_backward::kThreads, kBackwardShared,
                     words, chunks, chunks, elements(dy), elements(x), weights(weight), mean, mean + all_groups,
                     mean + 2 * all_groups, elements(dx), sums, words);
    if (wants[1] || wants[2]) {
      streamed_backward::affine_gradients_of_chunks<<<shape.channels, 1024, 0, at::cuda::getCurrentCUDAStream()>>>(
          sums, shape.samples, shape.channels, shape.spatial / kChunk * kBackwardSumWarps, gradients.weight,
          gradients.bias);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
    }
    return {dx, dweight, dbias};
  }
#endif
  const auto differentiate = choice.plan == Plan::kSmall ? differentiate_groups : differentiate_in_parts;
  differentiate(elements(dy), elements(x), weights(weight), statistics, shape, gradients);
  return {dx, dweight, dbias};
}
"""

ELEMENTS = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}


@functools.cache
def kernels_for(element, weight):
    """The kernels for x of one dtype and weight of another, compiled when they are first asked for."""
    for dtype in (element, weight):
        if dtype not in ELEMENTS:
            raise TypeError(f"group norm is for float32, float16 and bfloat16, not for {dtype}")
    x, w = ELEMENTS[element], ELEMENTS[weight]
    halves = int((x, w) != ("float", "float"))
    return load_inline(
        name=f"group_norm_{x.strip('_')}_{w.strip('_')}",
        cpp_sources=CPP_SOURCE,
        cuda_sources=f"#define ELEMENT {x}\n#define WEIGHT {w}\n#define HALVES {halves}\n{CUDA_SOURCE}",
        functions=["forward", "backward"],
        # nvcc and ptxas take a thread per kernel: of these they make the same instructions either way.
        extra_cuda_cflags=["-O3", "--split-compile=0", "-Xptxas", "--split-compile=0"],
    )


kernels_for(torch.float32, torch.float32)


class GroupNormFunction(torch.autograd.Function):
    """The kernels as one differentiable operation."""

    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        """Return y like x, contiguous; keeps x, weight and the statistics (3, batch, groups)."""
        x, weight = x.contiguous(), weight.contiguous()
        y, statistics = kernels_for(x.dtype, weight.dtype).forward(x, weight, bias.contiguous(), groups, eps)
        ctx.save_for_backward(x, weight, statistics)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return those of dx, dweight and dbias that autograd asks for."""
        x, weight, statistics = ctx.saved_tensors
        wants = list(ctx.needs_input_grad[:3])
        kernels = kernels_for(x.dtype, weight.dtype)
        dx, dweight, dbias = kernels.backward(dy.contiguous(), x, weight, statistics, wants)
        return dx, dweight, dbias, None, None


class ModelNew(nn.Module):
    """Group normalisation with the parameters of ``nn.GroupNorm``; input (batch, features, *spatial)."""

    def __init__(self, num_features: int, num_groups: int):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x; the result is contiguous."""
        return GroupNormFunction.apply(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps)

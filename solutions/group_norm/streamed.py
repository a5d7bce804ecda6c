# Rendered from templates/group_norm: change that, not this file, and render again.
# template: group_norm
# parameters: {"fusion":"streamed","threads":256,"tiles_per_block":4,"unroll":2,"vector_width":4}
# digest: sha256:5dc190dae65bb7899dbccc176b36053941c698afe592be8042974f770aea8f8a
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
Backward:  stream_backward  grid (multiprocessors), block (384 on 9.0 alone, else 640; of halves 704), cooperative
           affine_gradients_of_chunks  grid (channels), block (1024)
Small groups, a block or a warp a group: normalise_held_groups up to 16384 floats; group_gradients and affine_gradients
up to 1024. All else: group_moments, merge_moments, normalise_rows; row_part_sums, group_means, input_gradient_rows,
affine_gradients.

Every reduction has a fixed order (no atomics): the same input gives the same bits.
"""

import functools
import hashlib

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

LAUNCHERS = r"""
#include <cstdint>

#if HALVES
struct __half;
struct __nv_bfloat16;
#endif

namespace OP_NAMESPACE {

// What x, y and their gradients hold; what weight, bias and their gradients do. All else is float.
using Element = ELEMENT;
using Weight = WEIGHT;

// What a launcher reports: the kernel that failed to launch and CUDA's words, or two null pointers.
struct LaunchStatus {
  const char* kernel;
  const char* message;
};

// x is (samples, channels, spatial), contiguous; a group is `channels / groups` neighbouring channels of one sample.
struct Shape {
  int64_t samples;
  int64_t channels;
  int64_t groups;
  int64_t spatial;
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  Element* x;       // like x
  Weight* weight;  // (channels)
  Weight* bias;    // (channels)
};

// Floats of scratch memory that launch_backward wants.
int64_t backward_scratch(const Shape& shape);

// Writes (never accumulates) the wanted gradients.
LaunchStatus launch_backward(const Element* dy, const Element* x, const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream);

// Floats of scratch memory that launch_forward wants.
int64_t forward_scratch(const Shape& shape);

// Writes y like x, and mean and rstd of what is normalised, each (samples, groups).
LaunchStatus launch_forward(const Element* x, const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream);

}  // namespace OP_NAMESPACE
"""

CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#if HALVES
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace OP_NAMESPACE {

constexpr int kThreads = 256;       // of a block that streams a long row or group
constexpr int kVectorWidth = 16 / sizeof(Element);  // elements a load, where alignment allows
constexpr int kBatch = kVectorWidth * 2;  // elements a thread holds of one tile
constexpr int64_t kTilesPerBlock = 4;          // tiles that one block reduces

// What every launcher needs: a status that names the kernel, the device of the tensors, a grid within CUDA's limits.

// Makes a device current for one scope; a negative index leaves the current one.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    if (device < 0 || cudaGetDevice(&previous_) != cudaSuccess) previous_ = -1;
    if (previous_ >= 0 && previous_ != device) cudaSetDevice(device);
    else previous_ = -1;
  }
  ~CurrentDevice() {
    if (previous_ >= 0) cudaSetDevice(previous_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = -1;
};

// The outcome of the launch just made, in CUDA's words.
inline LaunchStatus launched(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {nullptr, nullptr};
  return {kernel, cudaGetErrorString(error)};
}

inline int64_t ceil_div(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }

// Blocks along x for so many independent items; kernels stride by gridDim.x over what lies beyond CUDA's limit.
inline unsigned grid_for(int64_t items) {
  constexpr int64_t kMaxGridX = 0x7fffffff;
  return static_cast<unsigned>(items < kMaxGridX ? items : kMaxGridX);
}

// Threads for one block that walks over `length` elements: whole warps, no more than `max_threads`.
inline unsigned threads_for(int64_t length, int max_threads) {
  const int64_t wanted = ceil_div(ceil_div(length, 4), 32) * 32;
  if (wanted >= max_threads) return static_cast<unsigned>(max_threads);
  return wanted < 32 ? 32u : static_cast<unsigned>(wanted);
}

// Whether rows of `length` elements that begin at `address` can be read in vectors of 16 bytes.
template <typename T>
bool reads_as_vectors(const T* address, int64_t length) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0 && length * sizeof(T) % 16 == 0;
}

// How elements of a type lie in memory, one by one and in vectors of 16 bytes.
template <typename T>
struct Format;

template <>
struct Format<float> {
  using Vector = float4;
  static __device__ __forceinline__ float widened(float value) { return value; }
  static __device__ __forceinline__ float rounded(float value) { return value; }
  static __device__ __forceinline__ void unpack(const float4& vector, float* values) {
    values[0] = vector.x;
    values[1] = vector.y;
    values[2] = vector.z;
    values[3] = vector.w;
  }
  static __device__ __forceinline__ float4 packed(const float* values) {
    return make_float4(values[0], values[1], values[2], values[3]);
  }
};

template <typename T>
__device__ __forceinline__ float as_float(T value) {
  return Format<T>::widened(value);
}

template <typename T>
__device__ __forceinline__ void put(T* to, float value) {
  *to = Format<T>::rounded(value);
}

template <int kWidth, typename T>
__device__ inline void load_vector(const T* source, float* values) {
  if constexpr (kWidth == 1) {
    values[0] = as_float(*source);
  } else {
    static_assert(kWidth * sizeof(T) == 16, "a vector has 16 bytes");
    using Vector = typename Format<T>::Vector;
    Format<T>::unpack(*reinterpret_cast<const Vector*>(source), values);
  }
}

template <int kWidth, typename T>
__device__ inline void store_vector(T* target, const float* values) {
  if constexpr (kWidth == 1) {
    put(target, values[0]);
  } else {
    static_assert(kWidth * sizeof(T) == 16, "a vector has 16 bytes");
    using Vector = typename Format<T>::Vector;
    *reinterpret_cast<Vector*>(target) = Format<T>::packed(values);
  }
}

// Elements of half the size: floats to compute with, rounded once, to nearest even, where they are stored.

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
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
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

// The elements, out of `length`, that whole tiles of this block cover; the rest is walked one by one.
__device__ inline int64_t tiled_length(int64_t length) {
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kBatch;
  return length / tile * tile;
}

// Tiles of kBatch elements a thread, held in registers as floats: all loads of a tile are in flight before the first is
// used. Within a tile, thread t owns the vectors t, t + blockDim.x, t + 2 blockDim.x, ... so that warps read whole lines.

template <int kWidth, typename T>
__device__ inline void load_tile(const T* tile, float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    load_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

template <int kWidth, typename T>
__device__ inline void store_tile(T* tile, const float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    store_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

// target[i] = map(source[i]) for i < length, by the whole block.
template <int kWidth, typename T, typename Map>
__device__ inline void transform(const T* source, T* target, int64_t length, Map map) {
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
template <int kWidth, typename T, typename Map>
__device__ inline void transform(const T* first, const T* second, T* target, int64_t length, Map map) {
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    float others[kBatch];
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

// Reductions over a warp and a block in a fixed order: the same bits in every run.
// A reduced type offers from_lane_above(value, offset), its __shfl_down_sync.

constexpr int kWarpSize = 32;
constexpr int kMaxWarps = 32;  // of one block
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline double from_lane_above(double value, int offset) {
  return __shfl_down_sync(kAllLanes, value, offset);
}

// The combination of all lanes' values; complete in lane 0 only.
template <typename Value, typename Combine>
__device__ inline Value warp_reduce(Value value, Combine combine) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = combine(value, from_lane_above(value, offset));
  return value;
}

// The combination of all threads' values, in every thread. blockDim.x is a multiple of 32 and blockDim.y is 1;
// `scratch` is shared memory of kMaxWarps values, free again for the next reduction.
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

// Mean and sum of squared deviations, merged pairwise (Chan, Golub and LeVeque 1979). Never E[x^2] - E[x]^2, which
// loses all digits of the variance where |mean| is much larger than the spread.

struct Moments {
  float count;
  float mean;
  float m2;  // sum of (x - mean)^2
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

// Two passes over values already in registers: one division a tile instead of one an element.
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

// The moments of this thread's share of data[0 .. length).
template <int kWidth, typename T>
__device__ inline Moments thread_moments(const T* data, int64_t length) {
  const MergeMoments merge;
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(data + start, values);
    running = merge(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = merge(running, Moments{1.0f, as_float(data[i]), 0.0f});
  }
  return running;
}

// The moments of data[0 .. length), in every thread of the block.
template <int kWidth, typename T>
__device__ inline Moments block_moments(const T* data, int64_t length, Moments* scratch) {
  return block_reduce(thread_moments<kWidth>(data, length), Moments{0.0f, 0.0f, 0.0f}, scratch, MergeMoments());
}

// A row is one channel of one sample: `spatial` neighbouring elements. Row r belongs to channel r % channels and to
// group r / channels_per_group, counted over the samples. What is normalised of an element x is x.

// Rows shorter than this are not worth a block or a warp: their elements are spread over threads instead.
constexpr int64_t kShortRow = 64;

// What the gradients need of one row: sum(dy) and sum(dy * xhat), xhat = (x - mean) * rstd.
struct RowSums {
  float dy;
  float dy_xhat;
};

struct AddRowSums {
  __device__ RowSums operator()(const RowSums& left, const RowSums& right) const {
    return {left.dy + right.dy, left.dy_xhat + right.dy_xhat};
  }
};

__device__ inline RowSums from_lane_above(const RowSums& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.dy, offset), __shfl_down_sync(kAllLanes, value.dy_xhat, offset)};
}

// The sums over `length` elements of a row, in every thread of the block. A tile is summed by itself before it is
// added, so that rounding grows with the number of tiles and not of elements.
template <int kWidth>
__device__ inline RowSums block_row_sums(const Element* dy, const Element* x, int64_t length,
                                         float mean, float rstd, RowSums* scratch) {
  RowSums running = {0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float gradients[kBatch];
    float values[kBatch];
    load_tile<kWidth>(dy + start, gradients);
    load_tile<kWidth>(x + start, values);
    RowSums tile = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      tile.dy += gradients[i];
      tile.dy_xhat += gradients[i] * ((values[i] - mean) * rstd);
    }
    running = AddRowSums()(running, tile);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    const float gradient = as_float(dy[i]);
    running = AddRowSums()(running, RowSums{gradient, gradient * ((as_float(x[i]) - mean) * rstd)});
  }
  return block_reduce(running, RowSums{0.0f, 0.0f}, scratch, AddRowSums());
}

// The same by one thread.
__device__ inline RowSums thread_row_sums(const Element* dy, const Element* x, int64_t length,
                                          float mean, float rstd) {
  RowSums running = {0.0f, 0.0f};
  for (int64_t i = 0; i < length; ++i) {
    const float gradient = as_float(dy[i]);
    running = AddRowSums()(running, RowSums{gradient, gradient * ((as_float(x[i]) - mean) * rstd)});
  }
  return running;
}

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

// y = (x - mean) * rstd * weight + bias
struct Normalise {
  float mean;
  float scale;  // rstd * weight
  float bias;
  __device__ float operator()(float x) const { return (x - mean) * scale + bias; }
};

// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g = dy * weight, the means over the group
struct InputGradient {
  float mean;
  float rstd;
  float weight;
  float mean_dy;       // mean(dy * weight)
  float mean_dy_xhat;  // mean(dy * weight * xhat)
  __device__ float operator()(float dy, float x) const {
    const float xhat = (x - mean) * rstd;
    return rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat);
  }
};

// dweight[c] = sum over samples of dy_xhat, dbias[c] = sum over samples of dy, from the sums of each row.
// Grid (channels / 32), block (32 channels, 32 lanes of samples); a fixed order, in double since there may be many.

constexpr int kAffineLanes = 32;

__global__ void affine_gradients(const RowSums* row_sums, int64_t samples, int64_t channels, Weight* dweight,
                                 Weight* dbias) {
  __shared__ double lane_dy[kAffineLanes][kWarpSize];
  __shared__ double lane_dy_xhat[kAffineLanes][kWarpSize];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  double sum_dy = 0.0;
  double sum_dy_xhat = 0.0;
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

inline LaunchStatus launch_affine_gradients(const RowSums* row_sums, const Shape& shape, Weight* dweight,
                                            Weight* dbias, cudaStream_t stream) {
  if (dweight == nullptr && dbias == nullptr) return {nullptr, nullptr};
  const unsigned blocks = grid_for(ceil_div(shape.channels, kWarpSize));
  affine_gradients<<<blocks, dim3(kWarpSize, kAffineLanes), 0, stream>>>(row_sums, shape.samples, shape.channels,
                                                                         dweight, dbias);
  return launched("affine_gradients");
}

namespace whole {

constexpr int kThreads = 1024;

// Backward in one launch and a small one: a block owns a group, sums each of its rows, and turns the sums into dx
// while the rows may still lie in L2. The affine gradients are then sums over the samples.

// Grid (samples * groups). `dx` may be null: only the row sums are wanted.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
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
    double share_dy = 0.0;
    double share_dy_xhat = 0.0;
    if (shape.spatial < kShortRow) {
      for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
        const int64_t start = member * shape.spatial;
        const RowSums sums =
            thread_row_sums(group_dy + start, group_x + start, shape.spatial, group_mean, group_rstd);
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
    const float mean_dy = static_cast<float>(block_reduce(share_dy, 0.0, group_scratch, AddDoubles()) / length);
    const float mean_dy_xhat =
        static_cast<float>(block_reduce(share_dy_xhat, 0.0, group_scratch, AddDoubles()) / length);
    Element* group_dx = dx + group * group_length;
    if (shape.spatial < kShortRow) {
      for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
        const int64_t member = i / shape.spatial;
        const InputGradient gradient = {group_mean,
                                        group_rstd,
                                        as_float(group_weight[member]),
                                        mean_dy,
                                        mean_dy_xhat};
        put(group_dx + i, gradient(as_float(group_dy[i]), as_float(group_x[i])));
      }
      continue;
    }
    for (int64_t member = 0; member < channels_per_group; ++member) {
      const int64_t start = member * shape.spatial;
      const InputGradient gradient = {group_mean,
                                      group_rstd,
                                      as_float(group_weight[member]),
                                      mean_dy,
                                      mean_dy_xhat};
      transform<kWidth>(group_dy + start, group_x + start, group_dx + start, shape.spatial, gradient);
    }
  }
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t floats_a_row = sizeof(RowSums) / sizeof(float);
  return shape.samples * shape.channels * floats_a_row;
}

LaunchStatus launch_backward(const Element* dy, const Element* x, const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  RowSums* row_sums = reinterpret_cast<RowSums*>(scratch);
  Element* dx = gradients.x;
  const int64_t groups = shape.samples * shape.groups;
  if (groups > 0) {
    const unsigned threads = threads_for(shape.channels / shape.groups * shape.spatial, kThreads);
    if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial) &&
        reads_as_vectors(dx, shape.spatial)) {
      group_gradients<kVectorWidth>
          <<<grid_for(groups), threads, 0, stream>>>(dy, x, weight, mean, rstd, shape, row_sums, dx);
    } else {
      group_gradients<1>
          <<<grid_for(groups), threads, 0, stream>>>(dy, x, weight, mean, rstd, shape, row_sums, dx);
    }
    const LaunchStatus status = launched("group_gradients");
    if (status.kernel != nullptr) return status;
  }
  return launch_affine_gradients(row_sums, shape, gradients.weight, gradients.bias, stream);
}

}  // namespace whole

// Forward of small groups in one launch and one pass: a team of threads reads a group once, and holds it in registers.

// The sum over a warp's lanes, in each of them.
template <typename T>
__device__ __forceinline__ T sum_of_lanes(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

namespace held {

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
    float held[kHeld];
    float sum = 0.0f;
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

template <int kHeld, int kWidth>
LaunchStatus launch(const Element* x, const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                    Element* y, float* mean, float* rstd, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  float* mean_low = rstd + groups;
  const int64_t length = shape.channels / shape.groups * shape.spatial;
  if (length <= kHeld * kWarpSize) {
    normalise_held_groups<kHeld, kWidth, true>
        <<<grid_for(ceil_div(groups, kWarpsPerBlock)), kWarpsPerBlock * kWarpSize, 0, stream>>>(
            x, weight, bias, shape, eps, y, mean, rstd, mean_low);
  } else {
    const unsigned threads = static_cast<unsigned>(ceil_div(ceil_div(length, kHeld), kWarpSize) * kWarpSize);
    normalise_held_groups<kHeld, kWidth, false>
        <<<grid_for(groups), threads, 0, stream>>>(x, weight, bias, shape, eps, y, mean, rstd, mean_low);
  }
  return launched("normalise_held_groups");
}

LaunchStatus launch_forward(const Element* x, const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                            Element* y, float* mean, float* rstd, cudaStream_t stream) {
  const int64_t length = shape.channels / shape.groups * shape.spatial;
  if (shape.samples == 0 || length == 0) return {nullptr, nullptr};
  const bool is_wide = reads_as_vectors(x, shape.spatial) && reads_as_vectors(y, shape.spatial);
  // Few elements a thread where there are threads enough: more of them wait for memory at the same time.
  if (length <= 4 * kMostThreads) {
    return is_wide ? launch<kWide, kWide>(x, weight, bias, shape, eps, y, mean, rstd, stream)
                   : launch<4, 1>(x, weight, bias, shape, eps, y, mean, rstd, stream);
  }
  return is_wide ? launch<kMostHeld, kWide>(x, weight, bias, shape, eps, y, mean, rstd, stream)
                 : launch<kMostHeld, 1>(x, weight, bias, shape, eps, y, mean, rstd, stream);
}

}  // namespace held

namespace in_parts {

// Work cut into equal parts of whole tiles; the last may be shorter.
struct Parts {
  int64_t count;
  int64_t length;
};

// No more than this many where they are reduced: they are merged by one block.
constexpr int64_t kMaxParts = 256;

inline Parts parts_of(int64_t length) {
  const int64_t tile = static_cast<int64_t>(kThreads) * kBatch;
  int64_t part = tile * kTilesPerBlock;
  if (ceil_div(length, part) > kMaxParts) part = ceil_div(ceil_div(length, kMaxParts), tile) * tile;
  const int64_t count = ceil_div(length, part);
  return {count < 1 ? 1 : count, part};
}

// The parts in which a row is reduced; a short one is never cut.
inline Parts row_parts(int64_t spatial) {
  if (spatial < kShortRow) return {1, spatial};
  return parts_of(spatial);
}

// One tile a part, for passes that write: the blocks at work then write one dense stretch of memory, with longer parts
// many scattered ones. normalise_rows, 112 x 64 x 512 x 512 on an H200: 3.7 ms, and 5.5 with four tiles a block.
inline Parts tiles_of(int64_t length) {
  const int64_t tile = static_cast<int64_t>(kThreads) * kBatch;
  return {ceil_div(length, tile), tile};
}

// Statistics of groups whose moments lie in memory, in parts.

__device__ inline void write_statistics(const Moments& group, float group_length, float eps, float* mean, float* rstd) {
  *mean = group.mean;
  *rstd = 1.0f / sqrtf(group.m2 / group_length + eps);
}

// Grid (groups), one warp: merges a group's parts.
__global__ void merge_moments(const Moments* moments, int64_t groups, int64_t group_length, int64_t parts, float eps,
                              float* mean, float* rstd) {
  const MergeMoments merge;
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    Moments running = {0.0f, 0.0f, 0.0f};
    for (int64_t part = threadIdx.x; part < parts; part += kWarpSize) {
      running = merge(running, moments[group * parts + part]);
    }
    running = warp_reduce(running, merge);
    if (threadIdx.x == 0) {
      write_statistics(running, static_cast<float>(group_length), eps, mean + group, rstd + group);
    }
  }
}

LaunchStatus launch_merge_moments(const Moments* moments, const Shape& shape, int64_t parts, float eps, float* mean,
                                  float* rstd, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  merge_moments<<<grid_for(groups), kWarpSize, 0, stream>>>(moments, groups, group_length, parts, eps, mean, rstd);
  return launched("merge_moments");
}

// Where all channels are activated alike, a group is one stretch of memory.

// Grid (groups * parts): the moments of one part, or at once mean and rstd where a group is a single part.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    group_moments(const Element* x, int64_t groups, int64_t group_length, Parts parts, float eps,
                  Moments* moments, float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < groups * parts.count; item += gridDim.x) {
    const int64_t group = item / parts.count;
    const int64_t begin = (item - group * parts.count) * parts.length;
    const int64_t left = group_length - begin;
    const int64_t length = left < parts.length ? left : parts.length;
    const Moments part =
        block_moments<kWidth>(x + group * group_length + begin, length, scratch);
    if (threadIdx.x != 0) continue;
    if (parts.count == 1) {
      write_statistics(part, static_cast<float>(group_length), eps, mean + group, rstd + group);
    } else {
      moments[item] = part;
    }
  }
}

int64_t forward_scratch(const Shape& shape) {
  const int64_t parts = parts_of(shape.channels / shape.groups * shape.spatial).count;
  const int64_t floats_per_moment = sizeof(Moments) / sizeof(float);
  return parts == 1 ? 0 : shape.samples * shape.groups * parts * floats_per_moment;
}

LaunchStatus launch_statistics(const Element* x, const Shape& shape, float eps, float* mean,
                               float* rstd, Moments* moments, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  const Parts parts = parts_of(group_length);
  const unsigned blocks = grid_for(groups * parts.count);
  const unsigned threads = threads_for(group_length, kThreads);
  if (reads_as_vectors(x, group_length)) {
    group_moments<kVectorWidth>
        <<<blocks, threads, 0, stream>>>(x, groups, group_length, parts, eps, moments, mean, rstd);
  } else {
    group_moments<1><<<blocks, threads, 0, stream>>>(x, groups, group_length, parts, eps, moments, mean, rstd);
  }
  const LaunchStatus status = launched("group_moments");
  if (status.kernel != nullptr || parts.count == 1) return status;
  return launch_merge_moments(moments, shape, parts.count, eps, mean, rstd, stream);
}

// Every row normalised by its group's statistics, one block a tile.

// Grid (rows * tiles).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_rows(const Element* x, const Weight* weight, const Weight* bias, const float* mean,
                   const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
Parts tiles, Element* y) {
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = {mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    const int64_t offset = row * spatial + begin;
    transform<kWidth>(x + offset, y + offset, length, normalise);
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

LaunchStatus launch_normalise(const Element* x, const Weight* weight, const Weight* bias,
                              const float* mean, const float* rstd, const Shape& shape, Element* y,
                              cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    normalise_elements<<<blocks, kThreads, 0, stream>>>(x, weight, bias, mean, rstd, rows, shape.channels,
                                                        channels_per_group, shape.spatial, y);
    return launched("normalise_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(x, shape.spatial) && reads_as_vectors(y, shape.spatial)) {
    normalise_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(
        x, weight, bias, mean, rstd, rows, shape.channels, channels_per_group, shape.spatial, tiles, y);
  } else {
    normalise_rows<1><<<blocks, threads, 0, stream>>>(x, weight, bias, mean, rstd, rows, shape.channels,
                                                      channels_per_group, shape.spatial, tiles, y);
  }
  return launched("normalise_rows");
}

// Forward: a group is cut into parts, one block a part, so that even one long group fills the device;
// its parts' moments are merged in order, and then every row is normalised, one block a tile.

LaunchStatus launch_forward(const Element* x, const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream_handle) {
  if (shape.samples * shape.channels * shape.spatial == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const LaunchStatus status =
      launch_statistics(x, shape, eps, mean, rstd, reinterpret_cast<Moments*>(scratch), stream);
  if (status.kernel != nullptr) return status;
  return launch_normalise(x, weight, bias, mean, rstd, shape, y, stream);
}

// Backward: sums over parts of each row, then the two means of each group, then dx, one block a tile of a row.

struct GroupMeans {
  float dy;       // mean(dy * weight)
  float dy_xhat;  // mean(dy * weight * xhat)
};

// Grid (rows * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_part_sums(const Element* dy, const Element* x, const float* mean, const float* rstd,
                  int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial, Parts parts,
                  RowSums* part_sums) {
  __shared__ RowSums scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * parts.count; item += gridDim.x) {
    const int64_t row = item / parts.count;
    const int64_t begin = (item - row * parts.count) * parts.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < parts.length ? left : parts.length;
    const int64_t group = row / channels_per_group;
    const int64_t offset = row * spatial + begin;
    const RowSums sums =
        block_row_sums<kWidth>(dy + offset, x + offset, length, mean[group], rstd[group], scratch);
    if (threadIdx.x == 0) part_sums[item] = sums;
  }
}

// One thread a row, for short rows.
__global__ void __launch_bounds__(kThreads)
    short_row_sums(const Element* dy, const Element* x, const float* mean, const float* rstd,
                   int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial, RowSums* row_sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const int64_t group = row / channels_per_group;
    row_sums[row] = thread_row_sums(dy + row * spatial, x + row * spatial, spatial,
                                    mean[group], rstd[group]);
  }
}

// Grid (groups): adds each row's parts in order, and the rows of the group into its means.
__global__ void __launch_bounds__(kThreads)
    group_means(const RowSums* part_sums, const Weight* weight, int64_t groups, int64_t channels,
                int64_t channels_per_group, int64_t spatial, int64_t parts, RowSums* row_sums, GroupMeans* means) {
  __shared__ double scratch[kMaxWarps];
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    double group_dy = 0.0;
    double group_dy_xhat = 0.0;
    for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
      const int64_t row = group * channels_per_group + member;
      double row_dy = 0.0;
      double row_dy_xhat = 0.0;
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
    group_dy = block_reduce(group_dy, 0.0, scratch, AddDoubles());
    group_dy_xhat = block_reduce(group_dy_xhat, 0.0, scratch, AddDoubles());
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
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const InputGradient gradient = {mean[group],     rstd[group],
                                    as_float(weight[channel]),   means[group].dy, means[group].dy_xhat};
    const int64_t offset = row * spatial + begin;
    transform<kWidth>(dy + offset, x + offset, dx + offset, length, gradient);
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
    const InputGradient gradient = {mean[group],     rstd[group],
                                    as_float(weight[channel]),   means[group].dy, means[group].dy_xhat};
    put(dx + i, gradient(as_float(dy[i]), as_float(x[i])));
  }
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t floats_per_pair = 2;  // of RowSums and of GroupMeans
  const int64_t pairs = rows + rows * row_parts(shape.spatial).count + shape.samples * shape.groups;
  return floats_per_pair * pairs;
}

LaunchStatus launch_row_sums(const Element* dy, const Element* x, const float* mean,
                             const float* rstd, const Shape& shape, RowSums* part_sums, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows, kThreads));
    short_row_sums<<<blocks, kThreads, 0, stream>>>(dy, x, mean, rstd, rows, shape.channels, channels_per_group,
                                                    shape.spatial, part_sums);
    return launched("short_row_sums");
  }
  const Parts parts = row_parts(shape.spatial);
  const unsigned blocks = grid_for(rows * parts.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial)) {
    row_part_sums<kVectorWidth><<<blocks, threads, 0, stream>>>(dy, x, mean, rstd, rows, shape.channels,
                                                                channels_per_group, shape.spatial, parts, part_sums);
  } else {
    row_part_sums<1><<<blocks, threads, 0, stream>>>(dy, x, mean, rstd, rows, shape.channels, channels_per_group,
                                                     shape.spatial, parts, part_sums);
  }
  return launched("row_part_sums");
}

LaunchStatus launch_input_gradient(const Element* dy, const Element* x, const Weight* weight,
                                   const float* mean, const float* rstd, const GroupMeans* means, const Shape& shape,
                                   Element* dx, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    input_gradient_elements<<<blocks, kThreads, 0, stream>>>(dy, x, weight, mean, rstd, means, rows,
                                                             shape.channels, channels_per_group, shape.spatial, dx);
    return launched("input_gradient_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial) &&
      reads_as_vectors(dx, shape.spatial)) {
    input_gradient_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(dy, x, weight, mean, rstd, means, rows,
                                                                      shape.channels, channels_per_group, shape.spatial,
                                                                      tiles, dx);
  } else {
    input_gradient_rows<1><<<blocks, threads, 0, stream>>>(dy, x, weight, mean, rstd, means, rows,
                                                           shape.channels, channels_per_group, shape.spatial, tiles,
                                                           dx);
  }
  return launched("input_gradient_rows");
}

LaunchStatus launch_means(const Element* dy, const Element* x, const Weight* weight,
                          const float* mean, const float* rstd, const Shape& shape, RowSums* row_sums,
                          RowSums* part_sums, GroupMeans* means, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t channels_per_group = shape.channels / shape.groups;
  const LaunchStatus status = launch_row_sums(dy, x, mean, rstd, shape, part_sums, stream);
  if (status.kernel != nullptr) return status;
  group_means<<<grid_for(groups), threads_for(4 * channels_per_group, kThreads), 0, stream>>>(
      part_sums, weight, groups, shape.channels, channels_per_group, shape.spatial,
      row_parts(shape.spatial).count, row_sums, means);
  return launched("group_means");
}

LaunchStatus launch_backward(const Element* dy, const Element* x, const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t groups = shape.samples * shape.groups;
  const int64_t rows = shape.samples * shape.channels;
  const int64_t parts = row_parts(shape.spatial).count;
  RowSums* row_sums = reinterpret_cast<RowSums*>(scratch);
  RowSums* part_sums = row_sums + rows;
  GroupMeans* means = reinterpret_cast<GroupMeans*>(part_sums + rows * parts);
  if (groups > 0) {
    LaunchStatus status =
        launch_means(dy, x, weight, mean, rstd, shape, row_sums, part_sums, means, stream);
    if (status.kernel != nullptr) return status;
    if (gradients.x != nullptr && shape.spatial > 0) {
      status = launch_input_gradient(dy, x, weight, mean, rstd, means, shape, gradients.x, stream);
      if (status.kernel != nullptr) return status;
    }
  }
  return launch_affine_gradients(row_sums, shape, gradients.weight, gradients.bias, stream);
}

}  // namespace in_parts

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
constexpr int kForwardTeams = 4;  // of four warps; each holds one chunk in registers
constexpr int kForwardStages = 13;
constexpr int kForwardWaiting = kForwardTeams + kForwardStages;  // chunks of a block, at most
constexpr int kForwardSumWarps = 8;
constexpr int kForwardShared = kForwardStages * kChunkBytes;
#ifdef SM_90A
constexpr bool kMovesRegisters = sizeof(Element) == 4;  // to threads that hold chunks; halves need more warps for sums
#else
constexpr bool kMovesRegisters = false;
#endif
constexpr int kBackwardTeams = kMovesRegisters ? 2 : 4;  // each holds so many chunks of x and dy:
constexpr int kBackwardSlots = kMovesRegisters ? 3 : 1;
constexpr int kBackwardStages = 7;  // of x and dy each
constexpr int kBackwardWaiting = kBackwardTeams * kBackwardSlots + kBackwardStages;
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
  if (device < 0 && cudaGetDevice(&device) != cudaSuccess) return 0;
  if (attribute_of(cudaDevAttrComputeCapabilityMajor, device) < 9) return 0;
  if (attribute_of(cudaDevAttrCooperativeLaunch, device) == 0) return 0;
  if (attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) < shared_bytes + kBesideRing) return 0;
  const int blocks = attribute_of(cudaDevAttrMultiProcessorCount, device);
  return blocks < kMaxBlocks ? blocks : kMaxBlocks;
}

// `is_aligned`: all tensors begin at multiples of 16 bytes; `small`: elements of a group that is small; `waiting`:
// chunks that a block's ring and registers hold.
//
// A block's chunks of a group wait in its ring and registers until the whole group is there. One more than these hold,
// and nobody could ever go on: such groups are not streamed.
inline Choice choice_of(const Shape& shape, int64_t small, bool is_aligned, int waiting, int shared_bytes, int device) {
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  if (group_length <= small) return {Plan::kSmall, 0};
  const bool is_cut = is_aligned && shape.spatial > 0 && shape.spatial % kChunk == 0;
  const int64_t bytes = shape.samples * shape.channels * shape.spatial * static_cast<int64_t>(sizeof(Element));
  if (is_cut && bytes >= kStreamedBytes) {
    const int blocks = streaming_blocks(device, shared_bytes);
    if (blocks > 0 && ceil_div(group_length / kChunk, blocks) < waiting) return {Plan::kStreamed, blocks};
  }
  return {Plan::kParts, 0};  // any device, any alignment, rows that chunks do not divide
}

inline bool is_vector_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Floats of scratch memory for the words of a launch that streams.
inline int64_t streaming_words(const Shape& shape) {
  const int64_t of_group = shape.channels / shape.groups * (shape.spatial / kChunk);
  return 4 * shape.samples * shape.groups * (of_group < kMaxBlocks ? of_group : kMaxBlocks);
}

// Floats of scratch memory for the sums of a backward's chunks.
inline int64_t streaming_sums(const Shape& shape) {
  return 2 * kBackwardSumWarps * shape.samples * shape.channels * (shape.spatial / kChunk);
}

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
// by parity since sums are taken in order, and no chunk behind a team's last is a ring ahead (no more chunks are in
// registers than in the ring).
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

using Vector = Format<Element>::Vector;

// How the input is cut; all chunks have kChunk elements.
struct Chunks {
  int groups;             // over all samples
  int of_group;
  int of_row;
  int channels_per_group;
  int groups_per_sample;

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

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Gives a place of the ring back, by all lanes of a warp that has read it. The next copy into it is the async proxy's:
// without the fence, loads that were issued and have not returned may still see what it writes.
__device__ __forceinline__ void release_place(uint64_t* empty) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// Copies a chunk into shared memory; its bytes count at the barrier.
__device__ __forceinline__ void bulk_load(void* to, const Element* from, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "n"(kChunkBytes), "r"(shared_address(barrier))
               : "memory");
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
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t ready[kRing];

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
  __syncwarp();  // a shuffle orders no accesses: what lane 0 wrote is read by the others
  if (lane == 0) *arrived = 0;
  return true;
}

// Launching kernels that stream (streaming.cuh).

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

inline LaunchStatus status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {nullptr, nullptr};
  cudaGetLastError();
  return {what, cudaGetErrorString(error)};
}

// A type that is said, not deduced.
template <typename T>
struct Said {
  using Type = T;
};

// Clears the words and launches a block a multiprocessor, all of which run at the same time or none.
template <typename... Parameters>
LaunchStatus launch_streaming(void (*kernel)(Parameters...), const char* name, int blocks, int threads,
                              int shared_bytes, ulonglong2* words, const Chunks& chunks, cudaStream_t stream,
                              typename Said<Parameters>::Type... arguments) {
  const size_t parts = chunks.of_group < blocks ? chunks.of_group : blocks;
  LaunchStatus status = status_of(
      cudaMemsetAsync(words, 0xff, sizeof(ulonglong2) * chunks.groups * parts, stream), "clearing words");
  if (status.kernel != nullptr) return status;
  status = status_of(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  if (status.kernel != nullptr) return status;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return status_of(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                                               pointers, shared_bytes, stream),
                   name);
}

// Forward in one pass over memory: see streaming.cuh. Chunks of 16 KB, thirteen of which lie in shared memory and four
// in registers: 35 MB over 132 multiprocessors, four groups of 8 MB.

namespace streamed_forward {

constexpr int kSumWarps = kForwardSumWarps;
constexpr int kSumThreads = kSumWarps * 32;
constexpr int kTeams = kForwardTeams;
constexpr int kStages = kForwardStages;
constexpr int kThreads = 64 + kSumThreads + kTeams * kTeam;
constexpr int kRing = ring_of(kForwardWaiting);

// What of a group's statistics a team needs: the mean in two floats, so that x - mean is exact far from zero.
struct Statistics {
  float mean;
  float mean_low;
  float rstd;
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
    float sum = 0.0f;
    float m2 = 0.0f;
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
      to[j * kTeam] = Format<Element>::packed(values);
    }
  }
}

// Grid: a block a multiprocessor. `words`: kUnset, for each group as many as blocks have chunks of it.
__global__ void __launch_bounds__(kThreads, 1)
    stream_forward(Chunks chunks, const Element* x, const Weight* weight, const Weight* bias, float eps, Element* y,
                   float* mean, float* rstd, float* mean_low, ulonglong2* words) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
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
      bulk_load(ring + stage * kChunkVectors, x + static_cast<int64_t>(blockIdx.x + i * blocks) * kChunk,
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

LaunchStatus launch_streamed_forward(const Element* x, const Weight* weight, const Weight* bias, const Shape& shape,
                                     float eps, Element* y, float* mean, float* rstd, ulonglong2* words, int blocks,
                                     cudaStream_t stream) {
  using namespace streamed_forward;
  Chunks chunks = chunks_of(shape);
  float* mean_low = rstd + shape.samples * shape.groups;
  return launch_streaming(stream_forward, "stream_forward", blocks, streamed_forward::kThreads, kForwardShared, words,
                          chunks, stream, chunks, x, weight, bias, eps, y, mean, rstd, mean_low, words);
}

// Backward in one pass over memory: see streaming.cuh. A chunk is 16 KB of x and 16 KB of dy. What waits is bound by how
// many of them fit a multiprocessor: seven in shared memory and four in registers, or six of floats in code for
// sm_90a: 55 MB over 132 multiprocessors, 3.3 groups of 8 MB each. What a thread needs beside its chunks is lost to them, so few threads hold
// much, and the other warps give them registers.

namespace streamed_backward {

constexpr int kSumWarps = kBackwardSumWarps;
constexpr int kSumThreads = kSumWarps * 32;
constexpr int kTeams = kBackwardTeams;
constexpr int kSlots = kBackwardSlots;
constexpr int kStages = kBackwardStages;
constexpr int kFirstTeam = 64 + kSumThreads;  // its first thread
constexpr int kThreads = kFirstTeam + kTeams * kTeam;
constexpr int kRing = ring_of(kBackwardWaiting);

// Registers of a thread: as launched, then of those that hold chunks, and of all others.
constexpr int kLaunched = 65536 / kThreads / 8 * 8;
constexpr int kHolding = 216;
constexpr int kOthers = (kLaunched * kThreads - kHolding * kTeams * kTeam) / kFirstTeam / 8 * 8;
static_assert(!kMovesRegisters || (kFirstTeam % kTeam == 0 && kOthers >= 72), "warpgroups are whole, and sums need 72 registers");

// What a team needs of a group: dx = dy * weight * rstd + (x - mean) * slope + offset.
struct Coefficients {
  float slope;
  float offset;
  float rstd;
  float mean;
  float mean_low;
};

struct Shared {
  Barriers<kStages, kRing> barriers;
  float2 of_warp[kRing][kSumWarps];
  Coefficients coefficients[kRing];
  int arrived[kRing];
};

static_assert(sizeof(Shared) <= kBesideRing && kTeams * kSlots <= kStages, "see plan.cuh and streaming.cuh");

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
    double dy = 0.0;
    double dy_xhat = 0.0;
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
  float group_mean = 0.0f;
  float group_low = 0.0f;
  float group_rstd = 0.0f;
  float group_dy = 0.0f;
  float group_dy_xhat = 0.0f;
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
        float values[kPerVector];
        float gradients[kPerVector];
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
      double dy = 0.0;
      double dy_xhat = 0.0;
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

// Takes a chunk into registers, and gives its place back.
__device__ __forceinline__ void take_chunk(const Vector* ring, int i, int thread, Shared& shared,
                                           Vector (&x)[kVectors], Vector (&dy)[kVectors]) {
  const int stage = i % kStages;
  const Vector* from = ring + stage * (2 * kChunkVectors);
  barrier_wait(shared.barriers.full + stage, i / kStages & 1);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    x[j] = from[j * kTeam + thread];
    dy[j] = from[kChunkVectors + j * kTeam + thread];
  }
  release_place(shared.barriers.empty + stage);
}

// Writes dx of a chunk as soon as its group's coefficients are known.
__device__ __forceinline__ void write_chunk(const Chunks& chunks, int i, int thread, const Weight* weight,
                                            Shared& shared, const Vector (&x)[kVectors], const Vector (&dy)[kVectors],
                                            Element* dx) {
  const int chunk = blockIdx.x + i * gridDim.x;
  const int group = chunk / chunks.of_group;
  const float row_weight = as_float(weight[chunks.channel(group, chunk - group * chunks.of_group)]);
  const int local = chunks.of_group >= static_cast<int>(gridDim.x) ? group : i;
  barrier_wait(shared.barriers.ready + local % kRing, local / kRing & 1);
  const Coefficients found = shared.coefficients[local % kRing];
  const float scale = found.rstd * row_weight;
  Vector* to = reinterpret_cast<Vector*>(dx + static_cast<int64_t>(chunk) * kChunk) + thread;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    float values[kPerVector];
    float gradients[kPerVector];
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

// Writes dx of every kTeams-th chunk of the block, and holds the next kSlots of them.
__device__ inline void write_gradients(const Chunks& chunks, int mine, const Vector* ring, const Weight* weight,
                                       Shared& shared, Element* dx) {
  constexpr int kStride = kSlots * kTeams;
  const int team = (threadIdx.x - kFirstTeam) / kTeam;
  const int thread = (threadIdx.x - kFirstTeam) % kTeam;
  Vector x[kSlots][kVectors];
  Vector dy[kSlots][kVectors];
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    const int i = team + slot * kTeams;
    if (i < mine) take_chunk(ring, i, thread, shared, x[slot], dy[slot]);
  }
#pragma unroll 1
  for (int first = team; first < mine; first += kStride) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const int i = first + slot * kTeams;
      if (i < mine) write_chunk(chunks, i, thread, weight, shared, x[slot], dy[slot], dx);
      if (i + kStride < mine) take_chunk(ring, i + kStride, thread, shared, x[slot], dy[slot]);
    }
  }
}

// Grid: a block a multiprocessor. `words` as in the forward; `sums`: of each chunk, for each warp that sums.
__global__ void __launch_bounds__(kThreads, 1)
    stream_backward(Chunks chunks, const Element* dy, const Element* x, const Weight* weight, const float* mean,
                    const float* rstd, const float* mean_low, Element* dx, RowSums* sums, ulonglong2* words) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) Vector ring[];
  __shared__ Shared shared;
  const int blocks = gridDim.x;
  const int mine = (chunks.groups * chunks.of_group - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  if (mine == 0) return;
  if (threadIdx.x < kRing) shared.arrived[threadIdx.x] = 0;
  shared.barriers.init(kSumWarps + kTeam / 32);
  if (threadIdx.x >= kFirstTeam) {
    if constexpr (kMovesRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kHolding));
    write_gradients(chunks, mine, ring, weight, shared, dx);
    return;
  }
  if constexpr (kMovesRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kOthers));
  if (threadIdx.x < 32) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < mine; ++i) {
      const int stage = i % kStages;
      const int64_t start = static_cast<int64_t>(blockIdx.x + i * blocks) * kChunk;
      Vector* to = ring + stage * (2 * kChunkVectors);
      barrier_wait(shared.barriers.empty + stage, (i / kStages & 1) ^ 1);
      barrier_expect(shared.barriers.full + stage, 2 * kChunkBytes);
      bulk_load(to, x + start, shared.barriers.full + stage);
      bulk_load(to + kChunkVectors, dy + start, shared.barriers.full + stage);
    }
  } else if (threadIdx.x < 64) {
    combine(chunks, mine, mean, rstd, mean_low, words, shared);
  } else {
    take_sums(chunks, mine, ring, weight, mean, rstd, mean_low, shared, sums, words);
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
  double dy = 0.0;
  double dy_xhat = 0.0;
  for (int64_t i = threadIdx.x; i < samples * sums_per_row; i += blockDim.x) {
    const int64_t row = i / sums_per_row * channels + blockIdx.x;
    const RowSums one = sums[row * sums_per_row + i % sums_per_row];
    dy += one.dy;
    dy_xhat += one.dy_xhat;
  }
  dy = block_reduce(dy, 0.0, scratch, AddDoubles());
  dy_xhat = block_reduce(dy_xhat, 0.0, scratch, AddDoubles());
  if (threadIdx.x != 0) return;
  if (dbias != nullptr) put(dbias + blockIdx.x, static_cast<float>(dy));
  if (dweight != nullptr) put(dweight + blockIdx.x, static_cast<float>(dy_xhat));
}

}  // namespace streamed_backward

LaunchStatus launch_streamed_backward(const Element* dy, const Element* x, const Weight* weight, const float* mean,
                                      const float* rstd, const Shape& shape, const Gradients& gradients,
                                      ulonglong2* words, RowSums* sums, int blocks, cudaStream_t stream) {
  using namespace streamed_backward;
  Chunks chunks = chunks_of(shape);
  const float* mean_low = rstd + shape.samples * shape.groups;
  const LaunchStatus status =
      launch_streaming(stream_backward, "stream_backward", blocks, streamed_backward::kThreads, kBackwardShared, words,
                       chunks, stream, chunks, dy, x, weight, mean, rstd, mean_low, gradients.x, sums, words);
  if (status.kernel != nullptr) return status;
  if (gradients.weight == nullptr && gradients.bias == nullptr) return status;
  affine_gradients_of_chunks<<<static_cast<unsigned>(shape.channels), 1024, 0, stream>>>(
      sums, shape.samples, shape.channels, shape.spatial / kChunk * kSumWarps, gradients.weight, gradients.bias);
  return launched("affine_gradients_of_chunks");
}

// Chooses kernels by the shape, in each direction: see plan.cuh. Whatever the forward runs writes what the mean's float
// lacks behind rstd, or zeros: the backward may run something else.

int64_t forward_scratch(const Shape& shape) {
  const int64_t of_parts = in_parts::forward_scratch(shape);
  const int64_t of_words = streaming_words(shape);
  return of_parts > of_words ? of_parts : of_words;
}

LaunchStatus launch_forward(const Element* x, const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream) {
  const bool is_aligned = is_vector_aligned(x) && is_vector_aligned(y);
  const Choice choice = choice_of(shape, kForwardSmall, is_aligned, kForwardWaiting, kForwardShared, device);
  const CurrentDevice current(device);
  const cudaStream_t cuda_stream = static_cast<cudaStream_t>(stream);
  if (choice.plan == Plan::kSmall) {
    return held::launch_forward(x, weight, bias, shape, eps, y, mean, rstd, cuda_stream);
  }
  if (choice.plan == Plan::kStreamed && is_compiled(streamed_forward::stream_forward)) {
    return launch_streamed_forward(x, weight, bias, shape, eps, y, mean, rstd, reinterpret_cast<ulonglong2*>(scratch),
                                   choice.blocks, cuda_stream);
  }
  const int64_t groups = shape.samples * shape.groups;
  if (groups > 0 && cudaMemsetAsync(rstd + groups, 0, groups * sizeof(float), cuda_stream) != cudaSuccess) {
    return launched("clearing statistics");
  }
  return in_parts::launch_forward(x, weight, bias, shape, eps, y, mean, rstd, scratch, device, stream);
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t of_whole = whole::backward_scratch(shape);
  const int64_t of_parts = in_parts::backward_scratch(shape);
  const int64_t of_stream = streaming_words(shape) + streaming_sums(shape);
  const int64_t larger = of_whole > of_parts ? of_whole : of_parts;
  return larger > of_stream ? larger : of_stream;
}

LaunchStatus launch_backward(const Element* dy, const Element* x, const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream) {
  const bool is_aligned = is_vector_aligned(x) && is_vector_aligned(dy) && is_vector_aligned(gradients.x);
  const Choice choice = choice_of(shape, kBackwardSmall, is_aligned, kBackwardWaiting, kBackwardShared, device);
  if (choice.plan == Plan::kStreamed && gradients.x != nullptr && is_compiled(streamed_backward::stream_backward)) {
    const CurrentDevice current(device);
    RowSums* sums = reinterpret_cast<RowSums*>(scratch + streaming_words(shape));
    return launch_streamed_backward(dy, x, weight, mean, rstd, shape, gradients,
                                    reinterpret_cast<ulonglong2*>(scratch), sums, choice.blocks,
                                    static_cast<cudaStream_t>(stream));
  }
  const auto launch = choice.plan == Plan::kSmall ? whole::launch_backward : in_parts::launch_backward;
  return launch(dy, x, weight, mean, rstd, shape, gradients, scratch, device, stream);
}

}  // namespace OP_NAMESPACE
"""

BINDING_SOURCE = r"""
// The thin side of the binding: torch's stable ABI, so that g++ needs a second or two and no torch upgrade breaks it.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

// Part of libtorch_cuda's C interface; torch declares it only where USE_CUDA is defined.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace OP_NAMESPACE {

using torch::stable::Tensor;

inline void* current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  const AOTITorchError error = aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream);
  STD_TORCH_CHECK(error == 0, "device ", tensor.get_device_index(), " has no current CUDA stream");
  return stream;
}

inline const float* input_floats(const Tensor& tensor) { return static_cast<const float*>(tensor.data_ptr()); }
inline float* output_floats(const Tensor& tensor) { return static_cast<float*>(tensor.data_ptr()); }

inline void check_float_input(const Tensor& tensor, const Tensor& x, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == torch::headeronly::ScalarType::Float, name, " must be float32");
  STD_TORCH_CHECK(tensor.get_device_index() == x.get_device_index(), name, " must be on the device of x");
  STD_TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
}

inline void check_launch(const LaunchStatus& status) {
  STD_TORCH_CHECK(status.kernel == nullptr, "kernel ", status.kernel, " was not launched: ", status.message);
}

}  // namespace OP_NAMESPACE

namespace OP_NAMESPACE {

using torch::headeronly::ScalarType;

template <typename T>
constexpr ScalarType scalar_type_of() {
#if HALVES
  if constexpr (std::is_same_v<T, __half>) return ScalarType::Half;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return ScalarType::BFloat16;
#endif
  return ScalarType::Float;
}

// A tensor's data, which are T's, contiguous and on the device of x.
template <typename T>
const T* input(const Tensor& tensor, const Tensor& x, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == scalar_type_of<T>(), name, " has another dtype than these kernels are for");
  STD_TORCH_CHECK(tensor.get_device_index() == x.get_device_index(), name, " must be on the device of x");
  STD_TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
  return static_cast<const T*>(tensor.data_ptr());
}

template <typename T>
T* output(const std::optional<Tensor>& tensor) {
  return tensor ? static_cast<T*>(tensor->data_ptr()) : nullptr;
}

inline Tensor new_floats(const Tensor& x, std::initializer_list<int64_t> shape) {
  return torch::stable::new_empty(x, shape, ScalarType::Float);
}

constexpr int64_t kStatistics = 3;

Shape shape_of(const Tensor& x, const Tensor& weight, int64_t groups) {
  STD_TORCH_CHECK(x.dim() >= 2, "x must be (batch, channels, *spatial), got ", x.dim(), " dimension(s)");
  const int64_t samples = x.size(0);
  const int64_t channels = x.size(1);
  STD_TORCH_CHECK(groups > 0 && channels > 0 && channels % groups == 0, channels, " channels cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(weight.dim() == 1 && weight.size(0) == channels, "weight must have ", channels, " elements");
  int64_t spatial = 1;
  for (int64_t axis = 2; axis < x.dim(); ++axis) spatial *= x.size(axis);
  return {samples, channels, groups, spatial};
}

// y like x, and statistics (3, batch, groups), float: mean, 1 / sqrt(variance + eps), and what the mean's float lacks.
std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                                   double eps) {
  const Element* from = input<Element>(x, x, "x");
  const Weight* weights = input<Weight>(weight, x, "weight");
  const Weight* biases = input<Weight>(bias, x, "bias");
  const Shape shape = shape_of(x, weight, groups);
  STD_TORCH_CHECK(bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  Tensor y = torch::stable::empty_like(x);
  Tensor statistics = new_floats(x, {kStatistics, shape.samples, shape.groups});
  std::optional<Tensor> scratch;
  const int64_t scratch_floats = forward_scratch(shape);
  if (scratch_floats > 0) scratch = new_floats(x, {scratch_floats});
  float* mean = output_floats(statistics);
  check_launch(launch_forward(from, weights, biases, shape, static_cast<float>(eps), output<Element>(y), mean,
                              mean + shape.samples * shape.groups, output<float>(scratch), x.get_device_index(),
                              current_stream(x)));
  return {y, statistics};
}

// The wanted ones of dx like x, dweight and dbias (channels).
std::tuple<std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>> backward(
    const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& statistics, int64_t groups, bool wants_dx,
    bool wants_dweight, bool wants_dbias) {
  const Element* from = input<Element>(x, x, "x");
  const Element* cotangent = input<Element>(dy, x, "the gradient of y");
  const Weight* weights = input<Weight>(weight, x, "weight");
  check_float_input(statistics, x, "statistics");
  const float* mean = input_floats(statistics);
  const Shape shape = shape_of(x, weight, groups);
  STD_TORCH_CHECK(dy.numel() == x.numel(), "the gradient of y must have the shape of x");
  STD_TORCH_CHECK(statistics.numel() == kStatistics * shape.samples * shape.groups,
                  "statistics must be (", kStatistics, ", batch, groups)");
  std::optional<Tensor> dx, dweight, dbias;
  if (wants_dx) dx = torch::stable::empty_like(x);
  if (wants_dweight) dweight = torch::stable::empty_like(weight);
  if (wants_dbias) dbias = torch::stable::empty_like(weight);
  Tensor scratch = new_floats(x, {backward_scratch(shape)});
  const Gradients gradients = {output<Element>(dx), output<Weight>(dweight), output<Weight>(dbias)};
  check_launch(launch_backward(cotangent, from, weights, mean, mean + shape.samples * shape.groups, shape,
                               gradients, output_floats(scratch), x.get_device_index(), current_stream(x)));
  return {dx, dweight, dbias};
}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def("forward(Tensor x, Tensor weight, Tensor bias, int groups, float eps) -> (Tensor, Tensor)");
  m.def(
      "backward(Tensor dy, Tensor x, Tensor weight, Tensor statistics, int groups, bool wants_dx, "
      "bool wants_dweight, bool wants_dbias) -> (Tensor?, Tensor?, Tensor?)");
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
}
"""


def build_operators(stem, launchers, cuda_source, binding_source, nvcc_flags=()):
    """Compile the sources and return the namespace of their operators in ``torch.ops``; with further flags for nvcc.

    The namespace carries a digest of the sources, so that different builds can live in one process.
    """
    digest = hashlib.sha256((launchers + cuda_source + binding_source).encode()).hexdigest()[:12]
    namespace = f"{stem}_{digest}"
    head = f"#define OP_NAMESPACE {namespace}\n{launchers}"
    load_inline(
        name=namespace,
        cpp_sources=[f"{head}{binding_source}"],
        cuda_sources=[f"{head}{cuda_source}"],
        no_implicit_headers=True,
        is_python_module=False,
        extra_cflags=["-O2"],
        # ptxas takes a thread per kernel; the level is that of the host's code, the device's is the highest by itself.
        extra_cuda_cflags=["-O1", *nvcc_flags, "-Xptxas", "--split-compile=0"],
    )
    return getattr(torch.ops, namespace)


def flags_of_sm_90a():
    """Return nvcc's flags for instructions of compute capability 9.0 alone; none if there are other devices."""
    capabilities = {torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())}
    return ["-gencode=arch=compute_90a,code=sm_90a", "-DSM_90A"] if capabilities == {(9, 0)} else []


ELEMENTS = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}


@functools.cache
def operators_for(element, weight):
    """The kernels for x of one dtype and weight of another, compiled when they are first asked for."""
    for dtype in (element, weight):
        if dtype not in ELEMENTS:
            raise TypeError(f"group norm is for float32, float16 and bfloat16, not for {dtype}")
    halves = int((element, weight) != (torch.float32, torch.float32))
    types = f"#define ELEMENT {ELEMENTS[element]}\n#define WEIGHT {ELEMENTS[weight]}\n#define HALVES {halves}\n"
    # The compiler, too, takes a thread per kernel: of these kernels it makes the same instructions either way.
    flags = ["--split-compile=0", *flags_of_sm_90a()]
    return build_operators("group_norm", types + LAUNCHERS, CUDA_SOURCE, BINDING_SOURCE, flags)


operators_for(torch.float32, torch.float32)


class GroupNormFunction(torch.autograd.Function):
    """The kernels as one differentiable operation."""

    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        """Return y like x, contiguous; keeps x, weight and the statistics (3, batch, groups)."""
        x, weight = x.contiguous(), weight.contiguous()
        y, statistics = operators_for(x.dtype, weight.dtype).forward(x, weight, bias.contiguous(), groups, eps)
        ctx.save_for_backward(x, weight, statistics)
        ctx.groups = groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return those of dx, dweight and dbias that autograd asks for."""
        x, weight, statistics = ctx.saved_tensors
        wants_dx, wants_dweight, wants_dbias = ctx.needs_input_grad[:3]
        dx, dweight, dbias = operators_for(x.dtype, weight.dtype).backward(
            dy.contiguous(), x, weight, statistics, ctx.groups, wants_dx, wants_dweight, wants_dbias
        )
        return dx, dweight, dbias, None, None


class ModelNew(nn.Module):
    """Group normalisation with the parameters of ``nn.GroupNorm``; input (batch, features, *spatial)."""

    def __init__(self, num_features: int, num_groups: int):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise x; the result is contiguous."""
        return GroupNormFunction.apply(x, self.gn.weight, self.gn.bias, self.gn.num_groups, self.gn.eps)

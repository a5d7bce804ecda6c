# Rendered from templates/conv_transpose2d_gelu_group_norm: change that, not this file, and render again.
# template: conv_transpose2d_gelu_group_norm
# parameters: {"block_channels":64,"block_pixels":256,"convolution":"tensor","depth":8,"gelu":"pass","statistics":"two_kernels","tensor_from":65536,"thread_channels":8,"thread_pixels":8,"threads":256,"tiles_per_block":4,"unroll":2,"vector_width":4,"weight_blocks":1056,"weight_channels":64,"weight_pixels":32}
# digest: sha256:69b1cb7ce10a6dca3d67d57cc9ec4aa51e509a0b874d8cff8639f0f031251f74
"""A transposed convolution, exact GELU and group normalisation, forward and backward.

Computes, for x of shape (batch, in_channels, height, width), float32, and each group of channels of each sample:

    z = conv_transpose2d(x, conv_transpose.weight, stride) + conv_transpose.bias    (batch, out_channels, *fine)
    a = z * (1 + erf(z / sqrt(2))) / 2
    y = (a - mean) / sqrt(variance + eps) * group_norm.weight + group_norm.bias

with fine = (extent - 1) * stride + kernel along either axis, and the gradients of x, conv_transpose.weight
(in_channels, out_channels, *kernel), conv_transpose.bias, group_norm.weight and group_norm.bias (out_channels,), all
float32.

Replaces: ``torch.nn.functional.gelu``, ``torch.nn.GroupNorm`` and their backwards (``gelu_backward``,
``native_group_norm``, ``native_group_norm_backward``), and ``torch.nn.ConvTranspose2d`` with its backward
(``conv_transpose2d``, ``convolution_backward``).
The last two stay torch's for other strides than 1 and 2, more than 64 channels, more than 9 taps (16 with stride 2),
rows of more than some 280 pixels (570), small batches, and on devices of another compute capability than 9.0.

Why that should be faster: behind the convolution eager PyTorch moves z's size through memory seven times in the forward
(the convolution's bias reads and writes, GELU reads and writes, group norm reads twice and writes) and nine times in
the backward (group norm reads two tensors twice and writes one, GELU reads two and writes one, the gradient of the
convolution's bias reads one). Here what lies between z and y never exists: GELU is computed again wherever z is read,
since it costs less than its way through memory. The convolution applies GELU to what it has in registers, too, and
gathers its moments. Then twice in the forward (z once, y once) and four and a half times in the backward (dy and z
twice, and the gradient of z once, as fp16). x becomes fp16 on its way into shared memory, as precise as TF32, which
multiplies at half the rate; a sample whose values fp16 cannot hold is convolved once more, scaled. The gradient of z is
scaled by a bound on it. One load of the pixels serves all taps of a kernel.
A group is cut into parts of 8192 floats, one block each, so that the device is full whatever the number of groups;
what is written is written in tiles of 2048 floats, one block each; a thread keeps 8 floats of a tensor in flight.

Forward:   prepare_weights      grid (64), block (128)
           correlate            grid (multiprocessors), block (512); a second time for samples that fp16 cannot hold
           or correlate_phases  grid (multiprocessors / stride, stride), block (512): the same with stride 2
           merge_moments        grid (batch * groups), block (32)
           normalise_rows       grid (batch * out_channels * tiles), block (32 .. 256)
Backward:  row_part_sums        grid (batch * out_channels * parts), block (32 .. 256)
           group_means          grid (batch * groups), block (32 .. 256)
           gradient_halves      grid (pixels / 1024, 8, batch), block (256)
           prepare_weights      grid (64), block (128)
           correlate            grid (multiprocessors), block (512): the gradient of x
           or gather_phases     grid (multiprocessors), block (416): the same with stride 2
           sum_weight_gradient  grid (multiprocessors / phases, phases), block (512)
           add_weight_sums      grid (taps * 16), block (256)
           shift_gradient       grid (out_channels), block (256): of the convolution's bias
           affine_gradients     grid (out_channels / 32), block (32, 32)
Where torch convolves, row_moments takes the place of the first two and input_gradient_rows that of the halves.
Images of fewer than 64 pixels take kernels with one thread an element (or a channel of a sample) instead.

Every reduction of these kernels has a fixed order (atomics only for maxima): the same input gives the same bits.
"""

import hashlib

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

LAUNCHERS = r"""
#include <cstdint>

namespace OP_NAMESPACE {

using Element = float;  // of x, y and their gradients
using Weight = float;   // of weight, bias and their gradients

// What a launcher reports: the kernel that failed to launch and CUDA's words, or two null pointers.
struct LaunchStatus {
  const char* kernel;
  const char* message;
};

// In what follows x is what the convolution wrote.

// What is added to it before it is normalised: the convolution's bias (channels).
struct Shift {
  const float* values;
};

// x is (samples, channels, spatial), contiguous; a group is `channels / groups` neighbouring channels of one sample.
struct Shape {
  int64_t samples;
  int64_t channels;
  int64_t groups;
  int64_t spatial;
  int64_t pitch;  // from a row of x to the next, in memory
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  Element* x;       // like x
  Weight* weight;  // (channels)
  Weight* bias;    // (channels)
  float* shift;   // (channels), of what was added to x channel by channel: sums over x's gradient, which it wants too
};

// Floats of scratch memory that launch_backward wants.
int64_t backward_scratch(const Shape& shape);

// Writes (never accumulates) the wanted gradients.
LaunchStatus launch_backward(const Element* dy, const Element* x, const Shift& shift, const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream);

// Writes y like x, and mean and rstd of what is normalised, each (samples, groups), from the moments of every channel
// of a sample, so many parts each.
LaunchStatus launch_forward_gathered(const float* x, const Shift& shift, const float* moments, int64_t parts,
                                     const float* weight, const float* bias, const Shape& shape, float eps, float* y,
                                     float* mean, float* rstd, int device, void* stream);
// Floats of scratch memory that launch_forward wants.
int64_t forward_scratch(const Shape& shape);

// Writes y like x, and mean and rstd of what is normalised, each (samples, groups).
LaunchStatus launch_forward(const Element* x, const Shift& shift, const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream);

// A transposed convolution without padding: (samples, in, height, width) becomes (samples, out, fine_height, fine_width).
// Weights are (in, out, kernel_y, kernel_x).
struct DenseConvolution {
  int64_t samples;
  int in;
  int out;
  int height;
  int width;
  int kernel_y;
  int kernel_x;
  int stride_y;
  int stride_x;

  bool is_strided() const { return stride_y != 1 || stride_x != 1; }
  int64_t fine_height() const { return (int64_t{height} - 1) * stride_y + kernel_y; }
  int64_t fine_width() const { return (int64_t{width} - 1) * stride_x + kernel_x; }
  int64_t fine_plane() const { return fine_height() * fine_width(); }
  int64_t pitch() const { return (fine_plane() + 31) / 32 * 32; }  // of planes of z: whole lines of caches

  // A phase is the outputs at one place modulo the strides; these are the most taps that reach one along an axis.
  int phase_taps_y() const { return (kernel_y + stride_y - 1) / stride_y; }
  int phase_taps_x() const { return (kernel_x + stride_x - 1) / stride_x; }
  int phases() const { return stride_y * stride_x; }
};

// Whether tensor cores convolve: by the device, channels, strides, taps and the width of images.
bool suits_tensor_cores(const DenseConvolution& convolution, int device);

// The parts in which launch_convolve gathers the moments of a channel of a sample; three floats each.
int64_t moment_parts(const DenseConvolution& convolution, int device);

// Bytes of scratch memory that launch_convolve wants.
int64_t convolve_scratch(const DenseConvolution& convolution);

// Writes z (samples, out, pitch) without the bias, the moments of GELU with it (samples, out, moment_parts), and the
// bits of every sample's largest magnitude.
LaunchStatus launch_convolve(const float* x, const float* weight, const float* bias,
                             const DenseConvolution& convolution, float* z, float* moments, unsigned* magnitudes,
                             uint8_t* scratch, int device, void* stream);

// What the backward reads; x is what the convolution read, z what it wrote.
struct DenseBackward {
  DenseConvolution convolution;
  int64_t groups;
  const float* dy;
  const float* x;
  const float* z;
  const float* weight;
  Shift bias;
  const float* norm_weight;
  const float* mean;
  const float* rstd;
  const unsigned* magnitudes;
};

// Where its gradients go; null where one is not wanted.
struct DenseGradients {
  float* x;
  float* weight;
  float* bias;
  float* norm_weight;
  float* norm_bias;
};

// Bytes of scratch memory that launch_gradients wants.
int64_t gradients_scratch(const DenseBackward& backward, int device);

// Writes the wanted gradients.
LaunchStatus launch_gradients(const DenseBackward& backward, const DenseGradients& gradients, uint8_t* scratch,
                              int device, void* stream);

}  // namespace OP_NAMESPACE
"""

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#ifdef SM_90A
#include <cuda_fp16.h>
#endif

namespace OP_NAMESPACE {

constexpr int kThreads = 256;       // of a block that streams a long row or group
constexpr int kVectorWidth = 4;     // floats a load, where alignment allows
constexpr int kBatch = 8;          // floats a thread holds of one tile
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

// Writes what nobody reads soon: L2 gives it to memory first.
template <int kWidth>
__device__ __forceinline__ void store_vector_once(float* target, const float* values) {
  if constexpr (kWidth == 4) __stcs(reinterpret_cast<float4*>(target), Format<float>::packed(values));
  else store_vector<kWidth>(target, values);
}

template <int kWidth, typename T>
__device__ inline void store_tile(T* tile, const float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    store_vector_once<kWidth>(tile + position, values + vector * kWidth);
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

// The moments of this thread's share of map(data[0 .. length)).
template <int kWidth, typename T, typename Map>
__device__ inline Moments thread_moments(const T* data, int64_t length, Map map) {
  const MergeMoments merge;
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(data + start, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
    running = merge(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = merge(running, Moments{1.0f, map(as_float(data[i])), 0.0f});
  }
  return running;
}

// The moments of map(data[0 .. length)), in every thread of the block.
template <int kWidth, typename T, typename Map>
__device__ inline Moments block_moments(const T* data, int64_t length, Moments* scratch, Map map) {
  return block_reduce(thread_moments<kWidth>(data, length, map), Moments{0.0f, 0.0f, 0.0f}, scratch, MergeMoments());
}

// GELU itself, not its approximation by a hyperbolic tangent: a = z Phi(z) and da/dz = Phi(z) + z phi(z), with the
// normal distribution Phi(z) = (1 + erf(z / sqrt(2))) / 2 and its density phi(z) = exp(-z^2 / 2) / sqrt(2 pi).

// An element as it is normalised, and its derivative by the element in memory.
struct Activation {
  float value;
  float slope;
};

constexpr float kDensityAtZero = 0.39894228f;  // 1 / sqrt(2 pi)
constexpr float kHalfLog2E = 0.72134752f;      // log2(e) / 2

__device__ inline float power_of_two(float exponent) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
}

// Phi(-distance), for a distance from 0 up. Its logarithm is nearly a polynomial: this one has its least error, in
// distance * Phi(-distance), below 1e-8 up to 6, and falls beyond. Half as many instructions as erff.
__device__ inline float normal_tail(float distance) {
  float exponent = -1.7487988e-6f;
  exponent = __fmaf_rn(exponent, distance, 2.5910920e-5f);
  exponent = __fmaf_rn(exponent, distance, -1.1924687e-4f);
  exponent = __fmaf_rn(exponent, distance, -3.0873748e-4f);
  exponent = __fmaf_rn(exponent, distance, 7.3079187e-3f);
  exponent = __fmaf_rn(exponent, distance, -5.2688602e-2f);
  exponent = __fmaf_rn(exponent, distance, -4.5912963e-1f);
  exponent = __fmaf_rn(exponent, distance, -1.1511194f);
  exponent = __fmaf_rn(exponent, distance, -9.9999923e-1f);
  return power_of_two(exponent);
}

// z Phi(z) is max(z, 0) - |z| Phi(-|z|). The intrinsic fixes how it is rounded, so that every kernel gets the same bits:
// where the values of a group are equal, the last bit of a difference is blown up by 1 / sqrt(eps).
__device__ inline float gelu(float z) { return __fmaf_rn(-fabsf(z), normal_tail(fabsf(z)), fmaxf(z, 0.0f)); }

__device__ inline Activation gelu_with_slope(float z) {
  const float tail = normal_tail(fabsf(z));
  const float density = kDensityAtZero * power_of_two(-kHalfLog2E * z * z);
  return {__fmaf_rn(-fabsf(z), tail, fmaxf(z, 0.0f)), (z < 0.0f ? tail : 1.0f - tail) + z * density};
}

// What is normalised of an element is GELU of it and of the convolution's bias, which is added here: for torch it would
// be one more pass over what the convolution wrote.
struct Activate {
  float shift;
  __device__ float operator()(float x) const { return gelu(x + shift); }
  __device__ Activation with_slope(float x) const { return gelu_with_slope(x + shift); }
};

__device__ inline Activate activate_of(const Shift& shift, int64_t channel) { return {shift.values[channel]}; }

// A row is one channel of one sample: `spatial` neighbouring elements. Row r belongs to channel r % channels and to
// group r / channels_per_group, counted over the samples. What is normalised of an element x is activate(x).

// Rows shorter than this are not worth a block or a warp: their elements are spread over threads instead.
constexpr int64_t kShortRow = 64;

// What the gradients need of one row: sum(dy) and sum(dy * xhat), xhat = (activate(x) - mean) * rstd.
struct RowSums {
  float dy;
  float dy_xhat;
  float largest;  // |dy|; NaN if there is one
};

__device__ inline float larger(float left, float right) { return left >= right || isnan(left) ? left : right; }

struct AddRowSums {
  __device__ RowSums operator()(const RowSums& left, const RowSums& right) const {
    return {left.dy + right.dy, left.dy_xhat + right.dy_xhat, larger(left.largest, right.largest)};
  }
};

__device__ inline RowSums from_lane_above(const RowSums& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.dy, offset), __shfl_down_sync(kAllLanes, value.dy_xhat, offset),
          __shfl_down_sync(kAllLanes, value.largest, offset)};
}

// The sums over `length` elements of a row, in every thread of the block. A tile is summed by itself before it is
// added, so that rounding grows with the number of tiles and not of elements.
template <int kWidth>
__device__ inline RowSums block_row_sums(const Element* dy, const Element* x, int64_t length, const Activate& activate,
                                         float mean, float rstd, RowSums* scratch) {
  RowSums running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float gradients[kBatch];
    float values[kBatch];
    load_tile<kWidth>(dy + start, gradients);
    load_tile<kWidth>(x + start, values);
    RowSums tile = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      tile.dy += gradients[i];
      tile.largest = fmaxf(tile.largest, fabsf(gradients[i]));
      tile.dy_xhat += gradients[i] * ((activate(values[i]) - mean) * rstd);
    }
    running = AddRowSums()(running, tile);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    const float gradient = as_float(dy[i]);
    running = AddRowSums()(running, RowSums{gradient, gradient * ((activate(as_float(x[i])) - mean) * rstd), fabsf(gradient)});
  }
  return block_reduce(running, RowSums{0.0f, 0.0f, 0.0f}, scratch, AddRowSums());
}

// The same by one thread.
__device__ inline RowSums thread_row_sums(const Element* dy, const Element* x, int64_t length, const Activate& activate,
                                          float mean, float rstd) {
  RowSums running = {0.0f, 0.0f, 0.0f};
  for (int64_t i = 0; i < length; ++i) {
    const float gradient = as_float(dy[i]);
    running = AddRowSums()(running, RowSums{gradient, gradient * ((activate(as_float(x[i])) - mean) * rstd), fabsf(gradient)});
  }
  return running;
}

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

// y = (activate(x) - mean) * rstd * weight + bias
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
  float mean;
  float rstd;
  float weight;
  float mean_dy;       // mean(dy * weight)
  float mean_dy_xhat;  // mean(dy * weight * xhat)
  __device__ float operator()(float dy, float x) const {
    const Activation a = activate.with_slope(x);
    const float xhat = (a.value - mean) * rstd;
    return a.slope * (rstd * (dy * weight - mean_dy - xhat * mean_dy_xhat));
  }
};

// A number a channel was added to x: its gradient is the sum of dx over samples and positions.

// An element of dx, which it also adds to a sum.
struct SummedInputGradient {
  InputGradient gradient;
  float* sum;
  __device__ float operator()(float dy, float x) const {
    const float dx = gradient(dy, x);
    *sum += dx;
    return dx;
  }
};

// Writes dx for a stretch of a row, by the whole block, and its sum to sums[row].
template <int kWidth>
__device__ inline void differentiate(const Element* dy, const Element* x, Element* dx, int64_t length,
                                     const InputGradient& gradient, double* scratch, float* sums, int64_t row) {
  float share = 0.0f;
  transform<kWidth>(dy, x, dx, length, SummedInputGradient{gradient, &share});
  const double sum = block_reduce(static_cast<double>(share), 0.0, scratch, AddDoubles());
  if (threadIdx.x == 0) sums[row] = static_cast<float>(sum);
}

// Grid (channels): dshift[c] is the sum of sums (samples, channels, parts) over samples and parts; a fixed order, in
// double since there may be many.
__global__ void __launch_bounds__(kThreads)
    shift_gradient(const float* sums, int64_t samples, int64_t channels, int64_t parts, float* dshift) {
  __shared__ double scratch[kMaxWarps];
  for (int64_t channel = blockIdx.x; channel < channels; channel += gridDim.x) {
    double share = 0.0;
    for (int64_t i = threadIdx.x; i < samples * parts; i += blockDim.x) {
      const int64_t sample = i / parts;
      share += sums[(sample * channels + channel) * parts + (i - sample * parts)];
    }
    const double sum = block_reduce(share, 0.0, scratch, AddDoubles());
    if (threadIdx.x == 0) dshift[channel] = static_cast<float>(sum);
  }
}

// `dx_sums`: of each of a row's `parts`; short rows have none, there dx itself is summed.
inline LaunchStatus launch_shift_gradient(const float* dx, const float* dx_sums, const Shape& shape, int64_t parts,
                                          float* dshift, cudaStream_t stream) {
  const bool is_short = shape.spatial < kShortRow;
  shift_gradient<<<grid_for(shape.channels), kThreads, 0, stream>>>(is_short ? dx : dx_sums, shape.samples,
                                                                    shape.channels, is_short ? shape.spatial : parts,
                                                                    dshift);
  return launched("shift_gradient");
}

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

// Where channels are activated each in its own way: the moments of every row, in parts.

// Grid (rows * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_moments(const Element* x, Shift shift, int64_t rows, int64_t channels, int64_t spatial, Parts parts,
                Moments* moments) {
  __shared__ Moments scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * parts.count; item += gridDim.x) {
    const int64_t row = item / parts.count;
    const int64_t begin = (item - row * parts.count) * parts.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < parts.length ? left : parts.length;
    const Activate activate = activate_of(shift, row % channels);
    const Moments part = block_moments<kWidth>(x + row * spatial + begin, length, scratch, activate);
    if (threadIdx.x == 0) moments[item] = part;
  }
}

// One thread a row, for short rows.
__global__ void __launch_bounds__(kThreads)
    short_row_moments(const Element* x, Shift shift, int64_t rows, int64_t channels, int64_t spatial,
                      Moments* moments) {
  const MergeMoments merge;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const Activate activate = activate_of(shift, row % channels);
    Moments running = {0.0f, 0.0f, 0.0f};
    for (int64_t i = 0; i < spatial; ++i) {
      running = merge(running, Moments{1.0f, activate(as_float(x[row * spatial + i])), 0.0f});
    }
    moments[row] = running;
  }
}

int64_t forward_scratch(const Shape& shape) {
  const int64_t floats_per_moment = sizeof(Moments) / sizeof(float);
  return shape.samples * shape.channels * row_parts(shape.spatial).count * floats_per_moment;
}

LaunchStatus launch_statistics(const Element* x, const Shift& shift, const Shape& shape, float eps, float* mean,
                               float* rstd, Moments* moments, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const Parts parts = row_parts(shape.spatial);
  LaunchStatus status = {nullptr, nullptr};
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows, kThreads));
    short_row_moments<<<blocks, kThreads, 0, stream>>>(x, shift, rows, shape.channels, shape.spatial, moments);
    status = launched("short_row_moments");
  } else {
    const unsigned blocks = grid_for(rows * parts.count);
    const unsigned threads = threads_for(shape.spatial, kThreads);
    if (reads_as_vectors(x, shape.spatial)) {
      row_moments<kVectorWidth>
          <<<blocks, threads, 0, stream>>>(x, shift, rows, shape.channels, shape.spatial, parts, moments);
    } else {
      row_moments<1><<<blocks, threads, 0, stream>>>(x, shift, rows, shape.channels, shape.spatial, parts, moments);
    }
    status = launched("row_moments");
  }
  if (status.kernel != nullptr) return status;
  return launch_merge_moments(moments, shape, shape.channels / shape.groups * parts.count, eps, mean, rstd, stream);
}

// Every row normalised by its group's statistics, one block a tile.

// Grid (rows * tiles).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_rows(const Element* x, Shift shift, const Weight* weight, const Weight* bias, const float* mean,
                   const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
int64_t pitch, Parts tiles, Element* y) {
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = {activate_of(shift, channel), mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    const int64_t offset = row * spatial + begin;
    transform<kWidth>(x + row * pitch + begin, y + offset, length, normalise);
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    normalise_elements(const Element* x, Shift shift, const Weight* weight, const Weight* bias, const float* mean,
                       const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                       Element* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = {activate_of(shift, channel), mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    put(y + i, normalise(as_float(x[i])));
  }
}

LaunchStatus launch_normalise(const Element* x, const Shift& shift, const Weight* weight, const Weight* bias,
                              const float* mean, const float* rstd, const Shape& shape, Element* y,
                              cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    normalise_elements<<<blocks, kThreads, 0, stream>>>(x, shift, weight, bias, mean, rstd, rows, shape.channels,
                                                        channels_per_group, shape.spatial, y);
    return launched("normalise_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(x, shape.spatial) && reads_as_vectors(y, shape.spatial)) {
    normalise_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(
        x, shift, weight, bias, mean, rstd, rows, shape.channels, channels_per_group, shape.spatial, shape.pitch, tiles, y);
  } else {
    normalise_rows<1><<<blocks, threads, 0, stream>>>(x, shift, weight, bias, mean, rstd, rows, shape.channels,
                                                      channels_per_group, shape.spatial, shape.pitch, tiles, y);
  }
  return launched("normalise_rows");
}

// Forward: a group is cut into parts, one block a part, so that even one long group fills the device;
// its parts' moments are merged in order, and then every row is normalised, one block a tile.

LaunchStatus launch_forward(const Element* x, const Shift& shift, const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream_handle) {
  if (shape.samples * shape.channels * shape.spatial == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const LaunchStatus status =
      launch_statistics(x, shift, shape, eps, mean, rstd, reinterpret_cast<Moments*>(scratch), stream);
  if (status.kernel != nullptr) return status;
  return launch_normalise(x, shift, weight, bias, mean, rstd, shape, y, stream);
}

// Forward behind something that has gathered the moments of what is normalised, each channel of a sample in `parts`:
// those of a group are merged in order, and then every row is normalised, one block a tile.

LaunchStatus launch_forward_gathered(const Element* x, const Shift& shift, const float* moments, int64_t parts,
                                     const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                                     Element* y, float* mean, float* rstd, int device, void* stream_handle) {
  if (shape.samples * shape.channels * shape.spatial == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const LaunchStatus status = launch_merge_moments(reinterpret_cast<const Moments*>(moments), shape,
                                                   shape.channels / shape.groups * parts, eps, mean, rstd, stream);
  if (status.kernel != nullptr) return status;
  return launch_normalise(x, shift, weight, bias, mean, rstd, shape, y, stream);
}

// Backward: sums over parts of each row, then the two means of each group, then dx, one block a tile of a row.

__device__ inline float from_lane_above(float value, int offset) { return __shfl_down_sync(kAllLanes, value, offset); }

struct Larger {
  __device__ float operator()(float left, float right) const { return larger(left, right); }
};

struct GroupMeans {
  float dy;       // mean(dy * weight)
  float dy_xhat;  // mean(dy * weight * xhat)
  float bound;    // of |dx|
};

// Grid (rows * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_part_sums(const Element* dy, const Element* x, Shift shift, const float* mean, const float* rstd,
                  int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial, int64_t pitch, Parts parts,
                  RowSums* part_sums) {
  __shared__ RowSums scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * parts.count; item += gridDim.x) {
    const int64_t row = item / parts.count;
    const int64_t begin = (item - row * parts.count) * parts.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < parts.length ? left : parts.length;
    const int64_t group = row / channels_per_group;
    const int64_t offset = row * spatial + begin;
    const Activate activate = activate_of(shift, row % channels);
    const RowSums sums =
        block_row_sums<kWidth>(dy + offset, x + row * pitch + begin, length, activate, mean[group], rstd[group], scratch);
    if (threadIdx.x == 0) part_sums[item] = sums;
  }
}

// One thread a row, for short rows.
__global__ void __launch_bounds__(kThreads)
    short_row_sums(const Element* dy, const Element* x, Shift shift, const float* mean, const float* rstd,
                   int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial, RowSums* row_sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const int64_t group = row / channels_per_group;
    row_sums[row] = thread_row_sums(dy + row * spatial, x + row * spatial, spatial, activate_of(shift, row % channels),
                                    mean[group], rstd[group]);
  }
}

// Grid (groups): adds each row's parts in order, and the rows of the group into its means.
__global__ void __launch_bounds__(kThreads)
    group_means(const RowSums* part_sums, const Weight* weight, const float* rstd, int64_t groups, int64_t channels,
                int64_t channels_per_group, int64_t spatial, int64_t parts, RowSums* row_sums, GroupMeans* means) {
  __shared__ double scratch[kMaxWarps];
  __shared__ float largest_scratch[kMaxWarps];
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    double group_dy = 0.0;
    double group_dy_xhat = 0.0;
    float largest = 0.0f;
    for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
      const int64_t row = group * channels_per_group + member;
      double row_dy = 0.0;
      double row_dy_xhat = 0.0;
      float row_largest = 0.0f;
      for (int64_t part = 0; part < parts; ++part) {
        const RowSums sums = part_sums[row * parts + part];
        row_dy += sums.dy;
        row_dy_xhat += sums.dy_xhat;
        row_largest = larger(row_largest, sums.largest);
      }
      row_sums[row] = {static_cast<float>(row_dy), static_cast<float>(row_dy_xhat), row_largest};
      const double row_weight = as_float(weight[row % channels]);
      group_dy += row_weight * row_dy;
      group_dy_xhat += row_weight * row_dy_xhat;
      largest = larger(largest, row_largest * fabsf(as_float(weight[row % channels])));
    }
    group_dy = block_reduce(group_dy, 0.0, scratch, AddDoubles());
    group_dy_xhat = block_reduce(group_dy_xhat, 0.0, scratch, AddDoubles());
    const double group_length = static_cast<double>(channels_per_group * spatial);
    largest = block_reduce(largest, 0.0f, largest_scratch, Larger());
    // |xhat| is at most the root of the group's length, and GELU's slope 1.13.
    const float mean_dy = static_cast<float>(group_dy / group_length);
    const float mean_dy_xhat = static_cast<float>(group_dy_xhat / group_length);
    const float most = largest + fabsf(mean_dy) + sqrtf(static_cast<float>(group_length)) * fabsf(mean_dy_xhat);
    if (threadIdx.x == 0) means[group] = {mean_dy, mean_dy_xhat, 1.2f * rstd[group] * most};
  }
}

// Grid (rows * tiles). `dx_sums`: of each tile.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    input_gradient_rows(const Element* dy, const Element* x, Shift shift, const Weight* weight, const float* mean,
                        const float* rstd, const GroupMeans* means, int64_t rows, int64_t channels,
                        int64_t channels_per_group, int64_t spatial, Parts tiles, Element* dx, float* dx_sums) {
  __shared__ double scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const InputGradient gradient = {activate_of(shift, channel), mean[group],     rstd[group],
                                    as_float(weight[channel]),   means[group].dy, means[group].dy_xhat};
    const int64_t offset = row * spatial + begin;
    differentiate<kWidth>(dy + offset, x + offset, dx + offset, length, gradient, scratch, dx_sums, item);
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    input_gradient_elements(const Element* dy, const Element* x, Shift shift, const Weight* weight, const float* mean,
                            const float* rstd, const GroupMeans* means, int64_t rows, int64_t channels,
                            int64_t channels_per_group, int64_t spatial, Element* dx) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const InputGradient gradient = {activate_of(shift, channel), mean[group],     rstd[group],
                                    as_float(weight[channel]),   means[group].dy, means[group].dy_xhat};
    put(dx + i, gradient(as_float(dy[i]), as_float(x[i])));
  }
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t floats_per_pair = 3;  // of RowSums and of GroupMeans
  const int64_t pairs = rows + rows * row_parts(shape.spatial).count + shape.samples * shape.groups;
  return floats_per_pair * pairs + rows * tiles_of(shape.spatial).count;
}

LaunchStatus launch_row_sums(const Element* dy, const Element* x, const Shift& shift, const float* mean,
                             const float* rstd, const Shape& shape, RowSums* part_sums, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows, kThreads));
    short_row_sums<<<blocks, kThreads, 0, stream>>>(dy, x, shift, mean, rstd, rows, shape.channels, channels_per_group,
                                                    shape.spatial, part_sums);
    return launched("short_row_sums");
  }
  const Parts parts = row_parts(shape.spatial);
  const unsigned blocks = grid_for(rows * parts.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial)) {
    row_part_sums<kVectorWidth><<<blocks, threads, 0, stream>>>(dy, x, shift, mean, rstd, rows, shape.channels,
                                                                channels_per_group, shape.spatial, shape.pitch, parts, part_sums);
  } else {
    row_part_sums<1><<<blocks, threads, 0, stream>>>(dy, x, shift, mean, rstd, rows, shape.channels, channels_per_group,
                                                     shape.spatial, shape.pitch, parts, part_sums);
  }
  return launched("row_part_sums");
}

LaunchStatus launch_input_gradient(const Element* dy, const Element* x, const Shift& shift, const Weight* weight,
                                   const float* mean, const float* rstd, const GroupMeans* means, const Shape& shape,
                                   Element* dx, float* dx_sums, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    input_gradient_elements<<<blocks, kThreads, 0, stream>>>(dy, x, shift, weight, mean, rstd, means, rows,
                                                             shape.channels, channels_per_group, shape.spatial, dx);
    return launched("input_gradient_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial) &&
      reads_as_vectors(dx, shape.spatial)) {
    input_gradient_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(dy, x, shift, weight, mean, rstd, means, rows,
                                                                      shape.channels, channels_per_group, shape.spatial,
                                                                      tiles, dx, dx_sums);
  } else {
    input_gradient_rows<1><<<blocks, threads, 0, stream>>>(dy, x, shift, weight, mean, rstd, means, rows,
                                                           shape.channels, channels_per_group, shape.spatial, tiles,
                                                           dx, dx_sums);
  }
  return launched("input_gradient_rows");
}

LaunchStatus launch_means(const Element* dy, const Element* x, const Shift& shift, const Weight* weight,
                          const float* mean, const float* rstd, const Shape& shape, RowSums* row_sums,
                          RowSums* part_sums, GroupMeans* means, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t channels_per_group = shape.channels / shape.groups;
  const LaunchStatus status = launch_row_sums(dy, x, shift, mean, rstd, shape, part_sums, stream);
  if (status.kernel != nullptr) return status;
  group_means<<<grid_for(groups), threads_for(4 * channels_per_group, kThreads), 0, stream>>>(
      part_sums, weight, rstd, groups, shape.channels, channels_per_group, shape.spatial,
      row_parts(shape.spatial).count, row_sums, means);
  return launched("group_means");
}

LaunchStatus launch_backward(const Element* dy, const Element* x, const Shift& shift, const Weight* weight,
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
  float* dx_sums = reinterpret_cast<float*>(means + groups);
  if (groups > 0) {
    LaunchStatus status =
        launch_means(dy, x, shift, weight, mean, rstd, shape, row_sums, part_sums, means, stream);
    if (status.kernel != nullptr) return status;
    if (gradients.x != nullptr && shape.spatial > 0) {
      status = launch_input_gradient(dy, x, shift, weight, mean, rstd, means, shape, gradients.x, dx_sums, stream);
      if (status.kernel != nullptr) return status;
    }
  }
  if (gradients.shift != nullptr) {
    const LaunchStatus status =
        launch_shift_gradient(gradients.x, dx_sums, shape, tiles_of(shape.spatial).count, gradients.shift, stream);
    if (status.kernel != nullptr) return status;
  }
  return launch_affine_gradients(row_sums, shape, gradients.weight, gradients.bias, stream);
}

#ifdef SM_90A
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

// Products of tiles by a warpgroup, with operands in shared memory.

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until no more than kLeft groups of products are under way.
template <int kLeft>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sums (64, 128) = left (64, 16) times right (128, 16) transposed, plus the sums before if `keeps`; both operands in
// shared memory, depth along memory.
__device__ __forceinline__ void multiply_halves(float (&sums)[64], uint64_t left, uint64_t right, int keeps) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, keeps, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]),
        "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
        "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]),
        "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
        "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]),
        "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
        "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]),
        "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31]),
        "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]),
        "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]),
        "+f"(sums[40]), "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]),
        "+f"(sums[44]), "+f"(sums[45]), "+f"(sums[46]), "+f"(sums[47]),
        "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]), "+f"(sums[51]),
        "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
        "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]),
        "+f"(sums[60]), "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63])
      : "l"(left), "l"(right), "r"(keeps));
}

// fp16 operands of tensor cores, scaled by powers of two, and where they lie: eight channels of a pixel are 16 bytes,
// an "eight"; the eights of neighbouring pixels follow each other. Eight eights are a core matrix of wgmma without
// swizzle, so that a tap of the convolution is a shift of the address by 16 bytes times the pixels.

constexpr int kMostChannels = 64;
constexpr int kEight = 8;
constexpr int kEightBytes = 16;
constexpr int kEights = kMostChannels / kEight;
constexpr int kTapBytes = kMostChannels * kMostChannels * 2;
constexpr int kMostTaps = 9;

constexpr unsigned kInfinity = 0x7f800000u;  // bits; more are NaN

// The exponent of a scale: the largest value, whose bits without the sign are `magnitude`, comes to lie between 2^14
// and 2^15. What is infinite or NaN stays so.
__device__ inline int scale_exponent(unsigned magnitude) {
  const int exponent = 14 + 127 - static_cast<int>(magnitude >> 23);
  return magnitude >= kInfinity ? 0 : (exponent < 126 ? exponent : 126);
}

__device__ inline float scale_of(int exponent) { return __int_as_float((127 + exponent) << 23); }

// value / 2^exponent in two steps, either of which is a normal float.
__device__ inline float unscaled(float value, int exponent) {
  const int half = exponent / 2;
  return value * scale_of(-half) * scale_of(half - exponent);
}

__device__ inline uint32_t pair_of_halves(float first, float second) {
  const __half2 rounded = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&rounded);
}

__device__ inline uint4 eight_halves(const float (&values)[kEight]) {
  return make_uint4(pair_of_halves(values[0], values[1]), pair_of_halves(values[2], values[3]),
                    pair_of_halves(values[4], values[5]), pair_of_halves(values[6], values[7]));
}

// Whether fp16 would lose a sample's values: x is converted as it is, in the hope that it does not.
__device__ inline bool is_out_of_range(unsigned magnitude) {
  constexpr unsigned kLargest = 0x477fe000u;   // 65504
  constexpr unsigned kSmallest = 0x3b000000u;  // 2^-9
  return magnitude < kInfinity && (magnitude > kLargest || (magnitude < kSmallest && magnitude != 0));
}

__device__ inline int sample_exponent(unsigned magnitude) {
  return is_out_of_range(magnitude) ? scale_exponent(magnitude) : 0;
}

// Which weights are multiplied: those of target channel m, source channel k and tap t lie at
// m * of_target + k * of_source + t, or backwards from the last tap.
struct Taps {
  const float* weights;
  int64_t of_target;
  int64_t of_source;
  int count;
  int sources;
  int targets;
  bool backwards;
};

// Grid (kMostChannels): a target channel's halves, as (tap, eight of the source, target, source), and their exponent.
__global__ void __launch_bounds__(128) prepare_weights(Taps taps, uint8_t* halves, int* exponents) {
  __shared__ unsigned warps[4];
  const int target = static_cast<int>(blockIdx.x);
  const int wanted = target < taps.targets ? taps.count * kEights : 0;
  const float* const weights = taps.weights + target * taps.of_target;
  unsigned largest = 0;
  for (int i = threadIdx.x; i < wanted; i += blockDim.x) {
    for (int k = i / taps.count * kEight; k < (i / taps.count + 1) * kEight && k < taps.sources; ++k) {
      largest = max(largest, __float_as_uint(weights[k * taps.of_source + i % taps.count]) & 0x7fffffffu);
    }
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (threadIdx.x % kWarpSize == 0) warps[threadIdx.x / kWarpSize] = largest;
  __syncthreads();
  largest = max(max(warps[0], warps[1]), max(warps[2], warps[3]));
  const int exponent = scale_exponent(largest);
  const float scale = scale_of(exponent);
  for (int i = threadIdx.x; i < taps.count * kEights; i += blockDim.x) {
    const int tap = i / kEights;
    const int from = taps.backwards ? taps.count - 1 - tap : tap;
    float values[kEight];
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      const int k = i % kEights * kEight + j;
      values[j] = target < taps.targets && k < taps.sources ? weights[k * taps.of_source + from] * scale : 0.0f;
    }
    *reinterpret_cast<uint4*>(halves + (int64_t{i} * kMostChannels + target) * kEightBytes) = eight_halves(values);
  }
  if (threadIdx.x == 0) exponents[target] = exponent;
}

// A convolution as a correlation along one line of pixels: the rows of an image follow each other, `pitch` apart, with
// zeros behind each, so that
//     target[q] = sum over taps t of source[q - shift(t)] * w(t),    shift = tap_y * pitch + tap_x,
// for all pixels q. The gradient of the input is the same with the taps backwards and q counted from `farthest` on.
//
// Every multiprocessor has one block, which walks along a stretch of all samples' pixels in steps of kSlot. Four warps
// bring the source into a ring of shared memory, as halves; three warpgroups take turns, one multiplies while others
// write out their steps. All taps read the same ring, each at its own shift. The ring's first pixels lie behind its end
// once more, so that kSlot pixels from any place on follow each other. Slots count the pixels a block has brought: in
// front of a stretch are `lead` of them that only taps reach.

constexpr int kSlot = 128;     // pixels of a step
constexpr int kGranule = 32;  // of these, a warp's
constexpr int kMirroredGranules = kSlot / kGranule;
constexpr int kSlotBarriers = 16;
constexpr int kCopyWarps = kSlot / kGranule;
constexpr int kMultiplyGroups = 3;  // warpgroups
constexpr int kCorrelateThreads = 128 * (1 + kMultiplyGroups);

enum class Pass {
  kForward,  // from x, as it is
  kRescue,   // the same for samples that fp16 lost, scaled
  kGradient  // from the halves of z's gradient
};

// The ring of a pass.
template <Pass kPass>
struct Ring {
  static constexpr int kGranules = kPass == Pass::kGradient ? 34 : 26;
  static constexpr int kPixels = kGranules * kGranule;
  static constexpr int kPlane = (kPixels + kSlot) * kEightBytes;  // from an eight of channels to the next
  static constexpr int kBytes = kEights * kPlane;
  static constexpr int kFarthest = kPixels - 2 * kSlot;  // taps beyond would leave no room ahead
};

// Where steps of z wait for their way to memory: rows of channels, at distances that spread over all banks.
constexpr int kStagedRow = (kSlot + 8) * 4;
constexpr int kStaged = kMostChannels * kStagedRow;

template <Pass kPass>
constexpr int kCorrelateShared = kMostTaps * kTapBytes + Ring<kPass>::kBytes + (kPass == Pass::kGradient ? 0 : kStaged);

struct Correlation {
  int64_t samples;
  int sources;  // channels
  int targets;
  int kernel_y;
  int kernel_x;
  int pitch;
  unsigned inverse_pitch;  // 2^32 / pitch, rounded up
  int farthest;            // shift
  int lead;
  int steps;  // of a sample
  const uint8_t* weights;
  const int* weight_exponents;
  const float* x;
  const uint8_t* planes;  // (samples, eights, plane, eight)
  int plane;              // pixels
  unsigned* magnitudes;   // of samples
  const int* exponents;   // of samples
  int height;             // of x and of its gradient
  int width;
  const float* bias;
  float* target;
  int64_t target_plane;
  int64_t target_pitch;  // from a plane to the next, in memory
  Moments* moments;  // (samples, targets, parts)
  int parts;
};

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void bulk_load(uint8_t* to, const uint8_t* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// Core matrices follow each other along pixels (or channels of the target) and are `next_eight` apart along the depth.
__device__ __forceinline__ uint64_t eights_descriptor(uint32_t address, int next_eight) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | static_cast<uint64_t>(next_eight / 16) << 16 | 8ull << 32;
}

// The same where the depth is the pixels, which run along memory; eights are `next_eight` apart.
__device__ __forceinline__ uint64_t pixels_descriptor(uint32_t address, int next_eight) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | 8ull << 16 | static_cast<uint64_t>(next_eight / 16) << 32;
}

struct SlotBarriers {
  uint64_t full[kSlotBarriers];
  uint64_t done[kSlotBarriers];
  uint64_t stored[kSlotBarriers];  // by the count of steps
  uint64_t weights;
};

__device__ __forceinline__ void await_slot(uint64_t* barriers, int slot) {
  barrier_wait(barriers + slot % kSlotBarriers, slot / kSlotBarriers & 1);
}

// A stretch of a sample's steps, by one block.
struct Stretch {
  int64_t sample;
  int first;
  int count;
};

// The stretches of this block, one after another.
template <Pass kPass>
struct Stretches {
  const Correlation& correlation;
  int64_t step;
  int64_t end;

  __device__ explicit Stretches(const Correlation& c) : correlation(c) {
    const int64_t steps = c.samples * c.steps;
    step = steps * blockIdx.x / gridDim.x;
    end = steps * (blockIdx.x + 1) / gridDim.x;
  }

  __device__ bool next(Stretch& stretch) {
    while (step < end) {
      stretch.sample = step / correlation.steps;
      stretch.first = static_cast<int>(step - stretch.sample * correlation.steps);
      const int64_t left = end - step;
      const int of_sample = correlation.steps - stretch.first;
      stretch.count = left < of_sample ? static_cast<int>(left) : of_sample;
      step += stretch.count;
      if (kPass != Pass::kRescue || is_out_of_range(correlation.magnitudes[stretch.sample])) return true;
    }
    return false;
  }
};

// Four warps bring a pass's source into the ring: x as float32, converted on the way, or halves that a kernel before
// has written, by bulk copies.

// Where a warp puts its share of the slots, and since when it may.
template <Pass kPass>
struct CopyPlace {
  int slot = 0;
  int granule;  // of the ring
  int behind;   // slots from the last that reads what lay here before

  __device__ CopyPlace(const Correlation& c, int warp) : granule(warp) {
    behind = (Ring<kPass>::kPixels - c.farthest - (warp + 1) * kGranule + kSlot) / kSlot;
  }
  __device__ void advance() {
    ++slot;
    granule += kMirroredGranules;
    if (granule >= Ring<kPass>::kGranules) granule -= Ring<kPass>::kGranules;
  }
};

// A lane's pixel of x in a step; one beside the image counts as the sample's first, and is cleared later.
struct SourcePixel {
  const float* from;
  bool is_inside;

  __device__ SourcePixel(const Correlation& c, const float* sample, int step) {
    const int pixel = step * kSlot + static_cast<int>(threadIdx.x);
    const int row = pixel < 0 ? 0 : static_cast<int>(__umulhi(pixel, c.inverse_pitch));
    const int column = pixel - row * c.pitch;
    is_inside = pixel >= 0 && row < c.height && column < c.width;
    from = sample + (is_inside ? row * c.width + column : 0);
  }
};

constexpr int kHalfEights = kEights / 2;  // that are on their way while the other half is converted

// Half of a pixel's channels, from eight `first` on. Channels beyond the last are 0.
__device__ __forceinline__ void load_half(const SourcePixel& pixel, int64_t plane, int first, int channels,
                                          float (&values)[kHalfEights][kEight]) {
  asm volatile("" : "+l"(plane));  // or the compiler keeps an offset for each channel in registers
  const float* const from = pixel.from + first * kEight * plane;
  if ((first + kHalfEights) * kEight <= channels) {
#pragma unroll
    for (int i = 0; i < kHalfEights * kEight; ++i) values[i / kEight][i % kEight] = __ldg(from + i * plane);
  } else {
#pragma unroll
    for (int i = 0; i < kHalfEights * kEight; ++i) {
      values[i / kEight][i % kEight] = first * kEight + i < channels ? __ldg(from + i * plane) : 0.0f;
    }
  }
}

// Writes these as halves, `plane` bytes from an eight to the next; a second time `mirror` bytes on, unless that is 0.
__device__ __forceinline__ void store_half(const float (&values)[kHalfEights][kEight], bool is_inside, uint8_t* to,
                                           int plane, int mirror) {
#pragma unroll
  for (int e = 0; e < kHalfEights; ++e) {
    uint4 halves = eight_halves(values[e]);
    if (!is_inside) halves = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(to + e * plane) = halves;
    if (mirror != 0) *reinterpret_cast<uint4*>(to + e * plane + mirror) = halves;
  }
}

__device__ __forceinline__ float largest_of(const float (&values)[kHalfEights][kEight], float largest) {
#pragma unroll
  for (int i = 0; i < kHalfEights * kEight; ++i) largest = fmaxf(largest, fabsf(values[i / kEight][i % kEight]));
  return largest;
}

__device__ __forceinline__ void scale_half(float (&values)[kHalfEights][kEight], float scale) {
#pragma unroll
  for (int i = 0; i < kHalfEights * kEight; ++i) values[i / kEight][i % kEight] *= scale;
}

template <Pass kPass>
__device__ inline void convert_slots(const Correlation& c, uint8_t* ring, SlotBarriers& barriers) {
  constexpr int kPlane = Ring<kPass>::kPlane;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t plane = static_cast<int64_t>(c.height) * c.width;
  CopyPlace<kPass> place(c, static_cast<int>(threadIdx.x) / kWarpSize);
  Stretch stretch;
  for (Stretches<kPass> stretches(c); stretches.next(stretch);) {
    const float* const sample = c.x + stretch.sample * c.sources * plane;
    const float scale = kPass == Pass::kRescue ? scale_of(scale_exponent(c.magnitudes[stretch.sample])) : 1.0f;
    const int end = stretch.first + stretch.count;
    float largest = 0.0f;
    float lower[kHalfEights][kEight];
    float upper[kHalfEights][kEight];
    SourcePixel pixel(c, sample, stretch.first - c.lead);
    load_half(pixel, plane, 0, c.sources, lower);
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < end; ++step) {
      load_half(pixel, plane, kHalfEights, c.sources, upper);
      const bool is_inside = pixel.is_inside;
      uint8_t* const to = ring + (place.granule * kGranule + lane) * kEightBytes;
      const int mirror = place.granule < kMirroredGranules ? Ring<kPass>::kPixels * kEightBytes : 0;
      if (kPass == Pass::kForward) largest = largest_of(lower, largest);
      if (kPass == Pass::kRescue) scale_half(lower, scale);
      if (place.slot >= place.behind) await_slot(barriers.done, place.slot - place.behind);
      store_half(lower, is_inside, to, kPlane, mirror);
      if (step + 1 < end) {
        pixel = SourcePixel(c, sample, step + 1);
        load_half(pixel, plane, 0, c.sources, lower);
      }
      if (kPass == Pass::kForward) largest = largest_of(upper, largest);
      if (kPass == Pass::kRescue) scale_half(upper, scale);
      store_half(upper, is_inside, to + kHalfEights * kPlane, kPlane, mirror);
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers.full + place.slot % kSlotBarriers);
      place.advance();
    }
    if (kPass == Pass::kForward) {
      const unsigned magnitude = __reduce_max_sync(kAllLanes, __float_as_uint(largest));
      if (lane == 0) atomicMax(c.magnitudes + stretch.sample, magnitude);
    }
  }
}

// Copies a warp's share of a slot of the gradient's halves, one lane an eight of channels. Pixels beside the plane are
// left as they are: no pixel that counts meets them.
__device__ inline void copy_granule(const Correlation& c, int64_t sample, int step,
                                    const CopyPlace<Pass::kGradient>& place, uint8_t* ring, SlotBarriers& barriers) {
  using Ring = Ring<Pass::kGradient>;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int wanted = step * kSlot + warp * kGranule + c.farthest;
  const int first = wanted < 0 ? 0 : wanted;
  const int end = wanted + kGranule < c.plane ? wanted + kGranule : c.plane;
  const int count = end > first ? end - first : 0;
  const bool is_mirrored = place.granule < kMirroredGranules;
  uint64_t* const full = barriers.full + place.slot % kSlotBarriers;
  if (lane == 0) barrier_expect(full, kEights * count * kEightBytes * (is_mirrored ? 2 : 1));
  __syncwarp();
  if (lane < kEights && count > 0) {
    uint8_t* const to = ring + lane * Ring::kPlane + (place.granule * kGranule + first - wanted) * kEightBytes;
    const uint8_t* const from =
        c.planes + ((sample * kEights + lane) * static_cast<int64_t>(c.plane) + first) * kEightBytes;
    bulk_load(to, from, count * kEightBytes, full);
    if (is_mirrored) bulk_load(to + Ring::kPixels * kEightBytes, from, count * kEightBytes, full);
  }
}

__device__ inline void copy_slots(const Correlation& c, uint8_t* ring, SlotBarriers& barriers) {
  CopyPlace<Pass::kGradient> place(c, static_cast<int>(threadIdx.x) / kWarpSize);
  Stretch stretch;
  for (Stretches<Pass::kGradient> stretches(c); stretches.next(stretch);) {
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < stretch.first + stretch.count; ++step) {
      if (place.slot >= place.behind) await_slot(barriers.done, place.slot - place.behind);
      copy_granule(c, stretch.sample, step, place, ring, barriers);
      place.advance();
    }
  }
}

// The products and where they go.

// Four neighbours of one channel, the first `count` of which exist. __stcs: what L2 holds back of a stream of writes it
// gives to memory later in an order that takes memory longer.
template <bool kAligned>
__device__ __forceinline__ void store_four(float* to, const float4& four, int count) {
  if constexpr (kAligned) {
    if (count > 0) __stcs(reinterpret_cast<float4*>(to), four);
    return;
  }
  if (count > 0) to[0] = four.x;
  if (count > 1) to[1] = four.y;
  if (count > 2) to[2] = four.z;
  if (count > 3) to[3] = four.w;
}

// Writes what this thread has of one channel: wgmma gives it two neighbours in every eight pixels, so that of 16 pixels
// it exchanges two with its neighbour.
template <bool kAligned>
__device__ __forceinline__ void store_row(const Correlation& c, const float (&row)[32], int first, bool exists,
                                          float* channel) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool is_odd = lane % 2 == 1;
#pragma unroll
  for (int i = 0; i < 32; i += 4) {
    const float sent = is_odd ? row[i] : row[i + 2];
    const float sent_too = is_odd ? row[i + 1] : row[i + 3];
    const float received = __shfl_xor_sync(kAllLanes, sent, 1);
    const float received_too = __shfl_xor_sync(kAllLanes, sent_too, 1);
    const float4 four = is_odd ? make_float4(received, received_too, row[i + 2], row[i + 3])
                               : make_float4(row[i], row[i + 1], received, received_too);
    const int pixel = first + i * 4 + (is_odd ? 8 : 0) + lane % 4 / 2 * 4;
    const int y = static_cast<int>(__umulhi(pixel, c.inverse_pitch));
    const int x = pixel - y * c.pitch;
    if (exists && y < c.height) store_four<kAligned>(channel + y * c.width + x, four, c.width - x);
  }
}

constexpr uint64_t kEvictFirst = 0x12f0000000000000;  // the same for bulk copies, as CUTLASS encodes it

// The barrier of a warpgroup's threads.
__device__ __forceinline__ void group_sync(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Writes a step of z by way of shared memory, in whole rows of channels; the warpgroups one after another. A warpgroup
// may come before the step before the last is stored: one barrier for all steps would let it pass.
__device__ inline void store_step(const Correlation& c, const float (&rows)[2][32], int64_t sample, int first,
                                  int count, uint8_t* staged, uint64_t* stored, int group) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  if (count > 0) await_slot(stored, count - 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int channel = thread / 32 * 16 + lane / 4 + half * 8;
    float2* const row = reinterpret_cast<float2*>(staged + channel * kStagedRow) + lane % 4;
#pragma unroll
    for (int i = 0; i < 32; i += 2) row[i * 2] = make_float2(rows[half][i], rows[half][i + 1]);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  group_sync(group);
  if (thread < kMostChannels) {
    if (thread < c.targets) {
      const int64_t left = c.target_pitch - first;
      const uint32_t bytes = static_cast<uint32_t>(left < kSlot ? left : kSlot) * 4;
      float* const to = c.target + (sample * c.targets + thread) * c.target_pitch + first;
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(to),
                   "r"(shared_address(staged + thread * kStagedRow)), "r"(bytes), "l"(kEvictFirst)
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    barrier_arrive(stored + count % kSlotBarriers);
  }
}

// The moments of those values that exist, if any; a first one that does not has no others behind it.
template <typename Exists>
__device__ __forceinline__ Moments moments_of_some(const float (&row)[32], const Exists& exists) {
  Moments moments = {0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (exists(i)) {
      moments.count += 1.0f;
      moments.mean += row[i] - row[0];
    }
  }
  if (moments.count == 0.0f) return moments;
  moments.mean = row[0] + moments.mean / moments.count;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (exists(i)) moments.m2 += (row[i] - moments.mean) * (row[i] - moments.mean);
  }
  return moments;
}

// The moments of the values in front of `end`, if a step reaches it; value i is pixel first + i / 2 * 8 + i % 2.
__device__ inline Moments moments_of_last(const float (&row)[32], int first, int64_t end) {
  return moments_of_some(row, [&](int i) { return first + i / 2 * 8 + i % 2 < end; });
}

// The moments of a whole step's. Equal values have their exact mean, here as above.
__device__ inline Moments moments_of_step(const float (&row)[32]) {
  float sums[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) sums[i] = row[i] + row[i + 16];
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] += sums[i + 8];
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[i] += sums[i + 4];
  const float mean = ((sums[0] + sums[1]) + (sums[2] + sums[3])) / 32;
  float m2[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < 32; ++i) m2[i % 4] += (row[i] - mean) * (row[i] - mean);
  return {32.0f, mean, (m2[0] + m2[1]) + (m2[2] + m2[3])};
}

// The part of a sample's moments that a warpgroup of this block gathers.
__device__ inline int part_of(const Correlation& c, int64_t sample, int group) {
  const int64_t steps = c.samples * c.steps;
  const int64_t first_block = ((sample * c.steps + 1) * gridDim.x - 1) / steps;
  return static_cast<int>(blockIdx.x - first_block) * kMultiplyGroups + group;
}

// Merges the moments that four lanes have of a channel, and writes them.
__device__ __forceinline__ void store_moments(const Correlation& c, Moments (&running)[2], int64_t sample, int part) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int offset = 1; offset < 4; offset *= 2) {
      running[half] = MergeMoments()(running[half], from_lane_above(running[half], offset));
    }
    const int target = warp * 16 + lane / 4 + half * 8;
    const int64_t channel = sample * c.targets + target;
    if (lane % 4 == 0 && target < c.targets) c.moments[channel * c.parts + part] = running[half];
  }
}

// Every third slot, by one warpgroup.
template <Pass kPass>
__device__ inline void multiply_slots(const Correlation& c, const uint8_t* weights, const uint8_t* ring,
                                      uint8_t* staged, SlotBarriers& barriers, int group) {
  constexpr int kPlane = Ring<kPass>::kPlane;
  constexpr int kRing = Ring<kPass>::kPixels;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize % 4;
  const uint64_t left = eights_descriptor(shared_address(weights), kMostChannels * kEightBytes);
  const uint64_t right = eights_descriptor(shared_address(ring), kPlane);
  const int targets[2] = {warp * 16 + lane / 4, warp * 16 + lane / 4 + 8};
  int exponents[2];
  float biases[2] = {0.0f, 0.0f};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    exponents[half] = c.weight_exponents[targets[half]];
    if (kPass != Pass::kGradient && targets[half] < c.targets) biases[half] = c.bias[targets[half]];
  }
  barrier_wait(&barriers.weights, 0);
  int slot = 0;
  int place = 0;  // of the slot in the ring
  int count = 0;  // of steps
  Stretch stretch;
  for (Stretches<kPass> stretches(c); stretches.next(stretch);) {
    Moments running[2] = { {0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f}};
    int of_sample = 0;
    if (kPass == Pass::kRescue) of_sample = scale_exponent(c.magnitudes[stretch.sample]);
    if (kPass == Pass::kGradient) of_sample = c.exponents[stretch.sample];
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < stretch.first + stretch.count; ++step) {
      await_slot(barriers.full, slot);
      if (slot % kMultiplyGroups == group) {
        if (step < stretch.first) {
          if (lane == 0) barrier_arrive(barriers.done + slot % kSlotBarriers);
        } else {
          float sums[64];
          int keeps = 0;
          uint64_t tap = left;
#pragma unroll 1
          for (int y = 0; y < c.kernel_y; ++y) {
#pragma unroll 1
            for (int x = 0; x < c.kernel_x; ++x) {
              int from = place - y * c.pitch - x;
              if (from < 0) from += kRing;
              const uint64_t pixels = right + from;
              begin_products();
#pragma unroll
              for (int eight = 0; eight < kEights; eight += 2) {
                multiply_halves(sums, tap + eight * kMostChannels, pixels + eight * (kPlane / kEightBytes), keeps);
                keeps = 1;
              }
              tap += kTapBytes / 16;
            }
          }
          commit_products();
          await_products<0>();
          if (lane == 0) barrier_arrive(barriers.done + slot % kSlotBarriers);
          const int first = step * kSlot;
          float rows[2][32];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float scale = scale_of(-exponents[half]);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
              const float sum = sums[i / 2 * 4 + half * 2 + i % 2];
              rows[half][i] = kPass == Pass::kForward ? sum * scale : unscaled(sum, exponents[half] + of_sample);
            }
            if constexpr (kPass == Pass::kGradient) {
              const bool exists = targets[half] < c.targets;
              float* const channel = c.target + (stretch.sample * c.targets + targets[half]) * c.target_pitch;
              if (c.width % 4 == 0) store_row<true>(c, rows[half], first, exists, channel);
              else store_row<false>(c, rows[half], first, exists, channel);
            }
          }
          if constexpr (kPass != Pass::kGradient) {
            store_step(c, rows, stretch.sample, first, count, staged, barriers.stored, group);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              float(&row)[32] = rows[half];
#pragma unroll
              for (int i = 0; i < 32; ++i) row[i] = gelu(row[i] + biases[half]);
              const Moments moments = first + kSlot <= c.target_plane
                                          ? moments_of_step(row)
                                          : moments_of_last(row, first + lane % 4 * 2, c.target_plane);
              running[half] = MergeMoments()(running[half], moments);
            }
          }
        }
      }
      if (step >= stretch.first) ++count;
      ++slot;
      place += kSlot;
      if (place >= kRing) place -= kRing;
    }
    if constexpr (kPass != Pass::kGradient) {
      store_moments(c, running, stretch.sample, part_of(c, stretch.sample, group));
    }
  }
}

// Grid (multiprocessors, or steps where these are fewer).
template <Pass kPass>
__global__ void __launch_bounds__(kCorrelateThreads, 1) correlate(const __grid_constant__ Correlation c) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ SlotBarriers barriers;
  uint8_t* const ring = shared + kMostTaps * kTapBytes;
  Stretch stretch;
  if (kPass == Pass::kRescue && !Stretches<kPass>(c).next(stretch)) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlotBarriers; ++i) {
      barrier_init(barriers.full + i, kCopyWarps);
      barrier_init(barriers.done + i, 4);
      barrier_init(barriers.stored + i, kMostChannels);
    }
    barrier_init(&barriers.weights, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const int taps = c.kernel_y * c.kernel_x;
    barrier_expect(&barriers.weights, taps * kTapBytes);
    bulk_load(shared, c.weights, taps * kTapBytes, &barriers.weights);
  }
  __syncthreads();
  if (threadIdx.x / 128 == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
    if constexpr (kPass == Pass::kGradient) copy_slots(c, ring, barriers);
    else convert_slots<kPass>(c, ring, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 136;");
    const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128 - 1, 0);
    multiply_slots<kPass>(c, shared, ring, ring + Ring<kPass>::kBytes, barriers, group);
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
#endif
}

// sums (64, 64) = left (64, 16) times right (64, 16) transposed, plus the sums before if `keeps`; both operands in
// shared memory, depth along memory.
__device__ __forceinline__ void multiply_halves(float (&sums)[32], uint64_t left, uint64_t right, int keeps) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, keeps, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]),
        "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
        "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]),
        "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
        "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]),
        "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
        "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]),
        "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31])
      : "l"(left), "l"(right), "r"(keeps));
}

// The convolution with stride 2 along x, and 1 or 2 along y. A phase (py, px) is the outputs (y * stride_y + py,
// x * 2 + px). Only taps whose ky is py modulo stride_y and whose kx is px modulo 2 reach them, from the pixels
// (y - ky / stride_y, x - kx / 2): a phase is a correlation of stride 1 along the line of x with a share of the taps.
//
// The blocks of a row of the grid multiply for one py. They bring x as `correlate` does. Of half a slot a warpgroup
// makes both px, which are kSlot neighbours of a row of z.

constexpr int kStride = 2;              // along x
constexpr int kMostPhases = 4;
constexpr int kTurn = kSlot / kStride;  // pixels of the line that a warpgroup multiplies at once

struct Phases {
  Correlation line;  // with the taps of the whole kernel, and the farthest of any phase
  int stride_y;
  int height;  // of z, or of its gradient
  int width;
};

// Where the line's pixel lies in a plane of z, in phase px of this block's; -1 beside it.
__device__ __forceinline__ int offset_of_phase(const Phases& p, int pixel, int px) {
  const int y = static_cast<int>(__umulhi(pixel, p.line.inverse_pitch));
  const int column = (pixel - y * p.line.pitch) * kStride + px;
  const int row = y * p.stride_y + static_cast<int>(blockIdx.y);
  return row < p.height && column < p.width ? row * p.width + column : -1;
}

// Which of a thread's values of a channel exist: value i is pixel first + i / 4 * 8 + i / 2 % 2 in phase i % 2.
__device__ inline unsigned existing_values(const Phases& p, int first) {
  unsigned exist = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (offset_of_phase(p, first + i / 4 * 8 + i / 2 % 2, i % kStride) >= 0) exist |= 1u << i;
  }
  return exist;
}

// The sums of both px, of kTurn pixels from `place` of the ring on.
__device__ __forceinline__ void multiply_turn(const Phases& p, uint64_t weights, uint64_t ring, int place,
                                              float (&sums)[kStride][32]) {
  constexpr int kPlane = Ring<Pass::kForward>::kPlane;
  const Correlation& c = p.line;
#pragma unroll
  for (int px = 0; px < kStride; ++px) {
    int keeps = 0;
    uint64_t row = weights;
    int from_row = place;
#pragma unroll 1
    for (int y = static_cast<int>(blockIdx.y); y < c.kernel_y; y += p.stride_y) {
#pragma unroll 1
      for (int x = px; x < c.kernel_x; x += kStride) {
        int from = from_row - x / kStride;
        if (from < 0) from += Ring<Pass::kForward>::kPixels;
        const uint64_t tap = row + x * (kTapBytes / 16);
        const uint64_t pixels = ring + from;
        begin_products();
#pragma unroll
        for (int eight = 0; eight < kEights; eight += 2) {
          multiply_halves(sums[px], tap + eight * kMostChannels, pixels + eight * (kPlane / kEightBytes), keeps);
          keeps = 1;
        }
      }
      row += c.kernel_x * (kTapBytes / 16);
      from_row -= c.pitch;
    }
  }
  commit_products();
  await_products<0>();
}

// Writes a turn of z by way of shared memory, the warpgroups one after another as in store_step. Rows of z begin
// anywhere, where bulk copies cannot. Each thread has one pixel, so that a warp's begin with a line of the cache.
__device__ inline void store_turn(const Phases& p, const float (&rows)[2][32], int64_t sample, int first, int count,
                                  uint8_t* staged, uint64_t* stored, int group) {
  constexpr int kLine = 32;   // floats
  constexpr int kAtOnce = 8;  // channels
  const Correlation& c = p.line;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  if (count > 0) await_slot(stored, count - 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int channel = thread / 32 * 16 + lane / 4 + half * 8;
    float4* const row = reinterpret_cast<float4*>(staged + channel * kStagedRow) + lane % 4;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      row[i] = make_float4(rows[half][i], rows[half][i + 1], rows[half][i + 2], rows[half][i + 3]);
    }
  }
  group_sync(group);
  const int at = (thread - offset_of_phase(p, first, 0) % kLine) & (kSlot - 1);
  const int offset = offset_of_phase(p, first + at / kStride, at % kStride);
  float* to = c.target + sample * c.targets * c.target_pitch + offset;
#pragma unroll 1
  for (int first_channel = 0; first_channel < c.targets; first_channel += kAtOnce) {
    float values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      values[i] = *reinterpret_cast<const float*>(staged + (first_channel + i) * kStagedRow + at * 4);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (offset >= 0 && first_channel + i < c.targets) __stcs(to, values[i]);
      to += c.target_pitch;
      asm volatile("" : "+l"(to));  // or the compiler computes each address anew
    }
  }
  barrier_arrive(stored + count % kSlotBarriers);
}

// Every third half of a slot, by one warpgroup.
template <Pass kPass>
__device__ inline void multiply_phases(const Phases& p, const uint8_t* weights, const uint8_t* ring, uint8_t* staged,
                                       SlotBarriers& barriers, int group) {
  constexpr int kRing = Ring<kPass>::kPixels;
  const Correlation& c = p.line;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize % 4;
  const uint64_t left = eights_descriptor(shared_address(weights), kMostChannels * kEightBytes);
  const uint64_t right = eights_descriptor(shared_address(ring), Ring<kPass>::kPlane);
  const int targets[2] = {warp * 16 + lane / 4, warp * 16 + lane / 4 + 8};
  int exponents[2];
  float biases[2] = {0.0f, 0.0f};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    exponents[half] = c.weight_exponents[targets[half]];
    if (targets[half] < c.targets) biases[half] = c.bias[targets[half]];
  }
  barrier_wait(&barriers.weights, 0);
  int turn = 0;   // two a slot
  int place = 0;  // of the turn in the ring
  int count = 0;  // of turns that are stored
  Stretch stretch;
  for (Stretches<kPass> stretches(c); stretches.next(stretch);) {
    Moments running[2] = { {0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f}};
    int of_sample = 0;
    if (kPass == Pass::kRescue) of_sample = scale_exponent(c.magnitudes[stretch.sample]);
    const int end = (stretch.first + stretch.count) * kSlot;
#pragma unroll 1
    for (int first = (stretch.first - c.lead) * kSlot; first < end; first += kTurn) {
      await_slot(barriers.full, turn / kStride);
      const bool counts = first >= stretch.first * kSlot;
      if (turn % kMultiplyGroups == group) {
        float sums[kStride][32];
        if (counts) multiply_turn(p, left, right, place, sums);
        if (lane == 0) barrier_arrive(barriers.done + turn / kStride % kSlotBarriers);
        if (counts) {
          float rows[2][32];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float scale = scale_of(-exponents[half]);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
              const float sum = sums[i % kStride][i / 4 * 4 + half * 2 + i / 2 % 2];
              rows[half][i] = kPass == Pass::kForward ? sum * scale : unscaled(sum, exponents[half] + of_sample);
            }
          }
          store_turn(p, rows, stretch.sample, first, count, staged, barriers.stored, group);
          const int begin = offset_of_phase(p, first, 0);
          const bool is_whole = begin >= 0 && offset_of_phase(p, first + kTurn - 1, 1) - begin == kSlot - 1;
          const unsigned exist = is_whole ? 0 : existing_values(p, first + lane % 4 * 2);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float(&row)[32] = rows[half];
#pragma unroll
            for (int i = 0; i < 32; ++i) row[i] = gelu(row[i] + biases[half]);
            const Moments moments =
                is_whole ? moments_of_step(row) : moments_of_some(row, [&](int i) { return exist >> i & 1; });
            running[half] = MergeMoments()(running[half], moments);
          }
        }
      }
      if (counts) ++count;
      ++turn;
      place += kTurn;
      if (place >= kRing) place -= kRing;
    }
    const int part = part_of(c, stretch.sample, group) + static_cast<int>(blockIdx.y) * (c.parts / p.stride_y);
    store_moments(c, running, stretch.sample, part);
  }
}

// Grid (multiprocessors / stride_y, or steps where these are fewer; stride_y).
template <Pass kPass>
__global__ void __launch_bounds__(kCorrelateThreads, 1) correlate_phases(const __grid_constant__ Phases p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ SlotBarriers barriers;
  const Correlation& c = p.line;
  uint8_t* const ring = shared + kMostTaps * kTapBytes;
  Stretch stretch;
  if (kPass == Pass::kRescue && !Stretches<kPass>(c).next(stretch)) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlotBarriers; ++i) {
      barrier_init(barriers.full + i, kCopyWarps);
      barrier_init(barriers.done + i, 4 * kStride);
      barrier_init(barriers.stored + i, 128);
    }
    barrier_init(&barriers.weights, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const int row = c.kernel_x * kTapBytes;
    const int first = static_cast<int>(blockIdx.y);
    const int rows = (c.kernel_y - first + p.stride_y - 1) / p.stride_y;
    barrier_expect(&barriers.weights, rows * row);
    for (int i = 0; i < rows; ++i) {
      bulk_load(shared + i * row, c.weights + (first + i * p.stride_y) * row, row, &barriers.weights);
    }
  }
  __syncthreads();
  if (threadIdx.x / 128 == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
    convert_slots<kPass>(c, ring, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 136;");
    const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128 - 1, 0);
    multiply_phases<kPass>(p, shared, ring, ring + Ring<kPass>::kBytes, barriers, group);
  }
#endif
}

// The gradient of x for the strides of phases.cuh: a sum over all phases and their taps, from the gradient of z as
// halves, a line for each phase. Rings of all lines would not fit shared memory. One warp brings windows instead: of
// each row of taps and each px in turn, the pixels of a step and those that its taps reach behind them. Three
// warpgroups take turns, one multiplies the windows of a step while others write out their steps.

constexpr int kWindows = 5;  // in shared memory
constexpr int kMostGatheredTaps = 16;
constexpr int kWindowPlane = (kSlot + 8) * kEightBytes;  // from an eight of channels to the next
constexpr int kWindow = kEights * kWindowPlane;
constexpr int kGatherShared = kMostGatheredTaps * kTapBytes + kWindows * kWindow;
constexpr int kGatherThreads = 128 * kMultiplyGroups + kWarpSize;

__device__ inline void bring_windows(const Phases& p, uint8_t* windows, SlotBarriers& barriers) {
  const Correlation& c = p.line;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int bytes = (kSlot + (c.kernel_x - 1) / kStride) * kEightBytes;  // of an eight
  int window = 0;
  Stretch stretch;
  for (Stretches<Pass::kGradient> stretches(c); stretches.next(stretch);) {
#pragma unroll 1
    for (int step = stretch.first; step < stretch.first + stretch.count; ++step) {
#pragma unroll 1
      for (int row = 0; row < c.kernel_y * kStride; ++row) {
        const int y = row / kStride;
        const int phase = y % p.stride_y * kStride + row % kStride;
        const int first = step * kSlot + y / p.stride_y * c.pitch;
        if (window >= kWindows) await_slot(barriers.done, window - kWindows);
        uint64_t* const full = barriers.full + window % kSlotBarriers;
        if (lane == 0) barrier_expect(full, kEights * bytes);
        __syncwarp();
        if (lane < kEights) {
          const int64_t plane = (phase * c.samples + stretch.sample) * kEights + lane;
          bulk_load(windows + window % kWindows * kWindow + lane * kWindowPlane,
                    c.planes + (plane * c.plane + first) * kEightBytes, bytes, full);
        }
        ++window;
      }
    }
  }
}

// The sums of a step, from windows `window` on.
__device__ __forceinline__ void multiply_windows(const Phases& p, uint64_t weights, uint64_t windows, int window,
                                                 SlotBarriers& barriers, float (&sums)[64]) {
  const Correlation& c = p.line;
  int keeps = 0;
#pragma unroll 1
  for (int row = 0; row < c.kernel_y * kStride; ++row, ++window) {
    await_slot(barriers.full, window);
    const uint64_t of_row = weights + row / kStride * c.kernel_x * (kTapBytes / 16);
    const uint64_t pixels = windows + window % kWindows * (kWindow / 16);
#pragma unroll 1
    for (int x = row % kStride; x < c.kernel_x; x += kStride) {
      const uint64_t tap = of_row + x * (kTapBytes / 16);
      const uint64_t from = pixels + x / kStride;
      begin_products();
#pragma unroll
      for (int eight = 0; eight < kEights; eight += 2) {
        multiply_halves(sums, tap + eight * kMostChannels, from + eight * (kWindowPlane / kEightBytes), keeps);
        keeps = 1;
      }
    }
    commit_products();
    await_products<0>();
    if (threadIdx.x % kWarpSize == 0) barrier_arrive(barriers.done + window % kSlotBarriers);
  }
}

// Every third step, by one warpgroup. Its products follow those of the step before: if it came earlier, it might take
// the parity of a window before its own for that of its own.
__device__ inline void gather_steps(const Phases& p, const uint8_t* weights, const uint8_t* windows,
                                    SlotBarriers& barriers, int group) {
  const Correlation& c = p.line;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize % 4;
  const uint64_t left = eights_descriptor(shared_address(weights), kMostChannels * kEightBytes);
  const uint64_t right = eights_descriptor(shared_address(windows), kWindowPlane);
  barrier_wait(&barriers.weights, 0);
  int window = 0;
  int count = 0;  // of steps
  Stretch stretch;
  for (Stretches<Pass::kGradient> stretches(c); stretches.next(stretch);) {
#pragma unroll 1
    for (int step = stretch.first; step < stretch.first + stretch.count; ++step) {
      if (count % kMultiplyGroups == group) {
        float sums[64];
        if (count > 0) await_slot(barriers.stored, count - 1);
        multiply_windows(p, left, right, window, barriers, sums);
        if (lane == 0) barrier_arrive(barriers.stored + count % kSlotBarriers);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int target = warp * 16 + lane / 4 + half * 8;
          const int exponent = c.weight_exponents[target] + c.exponents[stretch.sample];
          float row[32];
#pragma unroll
          for (int i = 0; i < 32; ++i) row[i] = unscaled(sums[i / 2 * 4 + half * 2 + i % 2], exponent);
          float* const channel = c.target + (stretch.sample * c.targets + target) * c.target_pitch;
          if (c.width % 4 == 0) store_row<true>(c, row, step * kSlot, target < c.targets, channel);
          else store_row<false>(c, row, step * kSlot, target < c.targets, channel);
        }
      }
      ++count;
      window += c.kernel_y * kStride;
    }
  }
}

// Grid (multiprocessors, or steps where these are fewer).
__global__ void __launch_bounds__(kGatherThreads, 1) gather_phases(const __grid_constant__ Phases p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ SlotBarriers barriers;
  uint8_t* const windows = shared + kMostGatheredTaps * kTapBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlotBarriers; ++i) {
      barrier_init(barriers.full + i, 1);
      barrier_init(barriers.done + i, 4);
      barrier_init(barriers.stored + i, 4);
    }
    barrier_init(&barriers.weights, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const int bytes = p.line.kernel_y * p.line.kernel_x * kTapBytes;
    barrier_expect(&barriers.weights, bytes);
    bulk_load(shared, p.line.weights, bytes, &barriers.weights);
  }
  __syncthreads();
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128, 0);
  if (group == kMultiplyGroups) bring_windows(p, windows, barriers);
  else gather_steps(p, shared, windows, barriers, group);
#endif
}

// The gradient of z as halves, for both products of the backward: (phases, samples, eights, plane, eight), one power of
// two a sample. Rows are `pitch` apart; what lies beside the image is 0.

constexpr int kHalvesThreads = 256;
constexpr int kPixelsOfThread = 4;
constexpr int kHalvesTile = kHalvesThreads * kPixelsOfThread;

struct GradientHalves {
  const float* dy;
  const float* z;
  int64_t pitch_of_z;   // from a plane to the next
  const float* weight;  // of the group norm
  const float* mean;
  const float* rstd;
  const GroupMeans* means;
  int64_t channels;
  int64_t groups;
  int height;  // of dy
  int width;
  int pitch;
  unsigned inverse_pitch;
  int plane;
  int* exponents;  // of samples
  uint8_t* halves;
  float* sums;  // of the gradient, (samples, channels, tiles)
  int stride_y;
};

// A pixel of a thread, and where it lies in dy. With strides two neighbours of dy lie in two lines, so that the tiles of
// a py go twice along its lines.
template <bool kStrided>
struct HalvesPixel {
  int phase = 0;
  int pixel;  // of the phase's line
  int row;
  int column;

  __device__ HalvesPixel(const GradientHalves& g, int i) {
    const int of_tile = i * kHalvesThreads + static_cast<int>(threadIdx.x);
    if constexpr (!kStrided) {
      pixel = static_cast<int>(blockIdx.x) * kHalvesTile + of_tile;
      row = static_cast<int>(__umulhi(pixel, g.inverse_pitch));
      column = pixel - row * g.pitch;
    } else {
      const int tiles = static_cast<int>(gridDim.x) / g.stride_y;
      const int py = static_cast<int>(blockIdx.x) / tiles;
      const int px = of_tile % kStride;
      pixel = (static_cast<int>(blockIdx.x) % tiles * kHalvesTile + of_tile) / kStride;
      phase = py * kStride + px;
      row = static_cast<int>(__umulhi(pixel, g.inverse_pitch));
      column = (pixel - row * g.pitch) * kStride + px;
      row = row * g.stride_y + py;
    }
  }
};

// The exponent of a sample's scale: no group's gradient exceeds its bound.
__device__ inline int gradient_exponent(const GradientHalves& g, int64_t sample) {
  float largest = 0.0f;
  for (int64_t group = 0; group < g.groups; ++group) {
    const float bound = g.means[sample * g.groups + group].bound;
    largest = bound <= largest ? largest : bound;  // NaN stays
  }
  return scale_exponent(__float_as_uint(largest));
}

// Grid (tiles, eights, samples).
template <bool kStrided>
__global__ void __launch_bounds__(kHalvesThreads, 3)
    gradient_halves(const __grid_constant__ GradientHalves g, Shift shift) {
  __shared__ float warp_sums[kHalvesThreads / kWarpSize][kEight];
  __shared__ InputGradient of_channel[kEight];
  __shared__ int exponent_of_sample;
  const int64_t sample = blockIdx.z;
  const int64_t first_channel = int64_t{blockIdx.y} * kEight;
  if (threadIdx.x == 0) {
    exponent_of_sample = gradient_exponent(g, sample);
    if (blockIdx.x == 0 && blockIdx.y == 0) g.exponents[sample] = exponent_of_sample;
  }
  if (threadIdx.x < kEight && first_channel + threadIdx.x < g.channels) {
    const int64_t channel = first_channel + threadIdx.x;
    const int64_t group = sample * g.groups + channel / (g.channels / g.groups);
    of_channel[threadIdx.x] = {activate_of(shift, channel), g.mean[group],     g.rstd[group],
                               g.weight[channel],           g.means[group].dy, g.means[group].dy_xhat};
  }
  __syncthreads();
  const float scale = scale_of(exponent_of_sample);
  const int64_t plane = static_cast<int64_t>(g.height) * g.width;
  int offsets[kPixelsOfThread];  // in an image; -1 beside it
#pragma unroll
  for (int j = 0; j < kPixelsOfThread; ++j) {
    const HalvesPixel<kStrided> at(g, j);
    offsets[j] = at.row < g.height && at.column < g.width ? at.row * g.width + at.column : -1;
  }
  float halves[kPixelsOfThread][kEight];
  float sums[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const int64_t channel = first_channel + i;
    sums[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < kPixelsOfThread; ++j) halves[j][i] = 0.0f;
    if (channel >= g.channels) continue;
    const InputGradient gradient = of_channel[i];
    const float* const dy = g.dy + (sample * g.channels + channel) * plane;
    const float* const z = g.z + (sample * g.channels + channel) * g.pitch_of_z;
#pragma unroll
    for (int j = 0; j < kPixelsOfThread; ++j) {
      const int at = offsets[j] < 0 ? 0 : offsets[j];
      const float value = gradient(dy[at], z[at]);
      if (offsets[j] >= 0) {
        sums[i] += value;
        halves[j][i] = value * scale;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kPixelsOfThread; ++j) {
    const HalvesPixel<kStrided> at(g, j);
    const int64_t line = ((kStrided ? at.phase * int64_t{gridDim.z} : 0) + sample) * gridDim.y + blockIdx.y;
    uint8_t* const to = g.halves + line * static_cast<int64_t>(g.plane) * kEightBytes;
    if (at.pixel < g.plane) reinterpret_cast<uint4*>(to)[at.pixel] = eight_halves(halves[j]);
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      sums[i] += __shfl_down_sync(kAllLanes, sums[i], offset);
    }
    if (threadIdx.x % kWarpSize == 0) warp_sums[threadIdx.x / kWarpSize][i] = sums[i];
  }
  __syncthreads();
  const int64_t channel = first_channel + threadIdx.x;
  if (threadIdx.x < kEight && channel < g.channels) {
    float sum = 0.0f;
    for (int warp = 0; warp < kHalvesThreads / kWarpSize; ++warp) sum += warp_sums[warp][threadIdx.x];
    g.sums[(sample * g.channels + channel) * gridDim.x + blockIdx.x] = sum;
  }
}

// sums (64, 64) += left (64, 16), 16 rows of which lie in a warp's registers, times right (16, 64) in shared memory,
// which runs along its 64 columns.
__device__ __forceinline__ void multiply_pixels(float (&sums)[32], const uint32_t (&left)[4], uint64_t right) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{ %32, %33, %34, %35}, %36, keeps, 1, 1, 1;\n"
      "}\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]),
        "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
        "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]),
        "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
        "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]),
        "+f"(sums[20]), "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]),
        "+f"(sums[24]), "+f"(sums[25]), "+f"(sums[26]), "+f"(sums[27]),
        "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]), "+f"(sums[31])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(1));
}

// The gradient of the weight: for every tap the product of x, in registers, with the gradient of z shifted by the tap,
// summed over pixels. The gradient's ring is that of the correlation; x lies in stages of a slot each. Four warps bring
// both, three warpgroups sum three taps each. Every block sums the slots of its stretches; its sums go to memory where
// the scale changes, and before they get so long that tensor cores, which do not round, would lose digits.
//
// With strides each phase has its line and its share of the taps, six at most: a row of the grid sums one phase.

template <bool kStrided>
constexpr int kTapsOfGroup = kStrided ? 2 : 3;
constexpr int kSumGroups = 3;
constexpr int kSumThreads = 128 * (1 + kSumGroups);
constexpr int kStages = 4;
constexpr int kStageEight = kSlot * kEightBytes;
constexpr int kStage = kEights * kStageEight;
using SumRing = Ring<Pass::kGradient>;
constexpr int kSumShared = SumRing::kBytes + kStages * kStage;
constexpr int kSummedSlots = 128;
constexpr int kTapSums = kMostChannels * kMostChannels;

struct WeightSums {
  Correlation gradient;  // whose source is the gradient of z
  const float* x;
  int channels;              // of x
  const unsigned* magnitudes;  // of x's samples
  float* partial;             // (blocks, taps, in, out) of kMostChannels each
  int taps;        // of the kernel
  int first_tap;   // of the kernel, in this phase
  int next_tap_y;  // from a row of the phase's taps to the next
};

template <bool kStrided>
struct SumsOfPhases {
  WeightSums of_phase[kStrided ? kMostPhases : 1];
};

// Brings this warp's granules of both.
__device__ inline void bring_slots(const WeightSums& s, uint8_t* ring, uint8_t* stages, SlotBarriers& barriers) {
  const Correlation& c = s.gradient;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t plane = static_cast<int64_t>(c.height) * c.width;
  CopyPlace<Pass::kGradient> place(c, warp);
  const int behind = place.behind < kStages ? place.behind : kStages;
  Stretch stretch;
  for (Stretches<Pass::kGradient> stretches(c); stretches.next(stretch);) {
    const float* const sample = s.x + stretch.sample * s.channels * plane;
    const float scale = scale_of(sample_exponent(s.magnitudes[stretch.sample]));
    const int end = stretch.first + stretch.count;
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < stretch.first; ++step) {
      if (place.slot >= behind) await_slot(barriers.done, place.slot - behind);
      copy_granule(c, stretch.sample, step, place, ring, barriers);
      if (lane == 0) barrier_arrive(barriers.full + place.slot % kSlotBarriers);
      place.advance();
    }
    float lower[kHalfEights][kEight];
    float upper[kHalfEights][kEight];
    SourcePixel pixel(c, sample, stretch.first);
    load_half(pixel, plane, 0, s.channels, lower);
#pragma unroll 1
    for (int step = stretch.first; step < end; ++step) {
      load_half(pixel, plane, kHalfEights, s.channels, upper);
      const bool is_inside = pixel.is_inside;
      uint8_t* const to = stages + place.slot % kStages * kStage + static_cast<int>(threadIdx.x) * kEightBytes;
      if (place.slot >= behind) await_slot(barriers.done, place.slot - behind);
      copy_granule(c, stretch.sample, step, place, ring, barriers);
      scale_half(lower, scale);
      store_half(lower, is_inside, to, kStageEight, 0);
      if (step + 1 < end) {
        pixel = SourcePixel(c, sample, step + 1);
        load_half(pixel, plane, 0, s.channels, lower);
      }
      scale_half(upper, scale);
      store_half(upper, is_inside, to + kHalfEights * kStageEight, kStageEight, 0);
      __syncwarp();
      if (lane == 0) barrier_arrive(barriers.full + place.slot % kSlotBarriers);
      place.advance();
    }
  }
}

// The left matrix of a product: 16 channels by 16 pixels of this warp, from `first` on.
__device__ __forceinline__ void load_pixels(const uint8_t* first, uint32_t (&left)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const uint8_t* const row = first + lane / 8 % 2 * kStageEight + (lane / 16 * 8 + lane % 8) * kEightBytes;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3}, [%4];"
               : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
               : "r"(shared_address(row))
               : "memory");
}

// Adds to this block's sums in memory, or writes them.
template <bool kStrided>
__device__ inline void add_sums(const WeightSums& s, const float (&sums)[kTapsOfGroup<kStrided>][32], int group,
                                int exponent, bool is_first) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize % 4;
  const int kernel_x = s.gradient.kernel_x;
  const int taps = kStrided ? s.taps : s.gradient.kernel_y * kernel_x;
#pragma unroll
  for (int i = 0; i < kTapsOfGroup<kStrided>; ++i) {
    int tap = group * kTapsOfGroup<kStrided> + i;
    if (tap >= s.gradient.kernel_y * kernel_x) break;
    if (kStrided) tap = s.first_tap + tap / kernel_x * s.next_tap_y + tap % kernel_x * kStride;
    float* const of_tap = s.partial + (static_cast<int64_t>(blockIdx.x) * taps + tap) * kTapSums;
#pragma unroll
    for (int j = 0; j < 32; j += 2) {
      const int in = warp * 16 + lane / 4 + j / 2 % 2 * 8;
      float2* const to = reinterpret_cast<float2*>(of_tap + in * kMostChannels + j / 4 * 8 + lane % 4 * 2);
      float2 sum = make_float2(unscaled(sums[i][j], exponent), unscaled(sums[i][j + 1], exponent));
      if (!is_first) {
        const float2 before = *to;
        sum.x += before.x;
        sum.y += before.y;
      }
      *to = sum;
    }
  }
}

// Sums some taps, by one warpgroup.
template <bool kStrided>
__device__ inline void sum_slots(const WeightSums& s, const uint8_t* ring, const uint8_t* stages,
                                 SlotBarriers& barriers, int group) {
  const Correlation& c = s.gradient;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize % 4;
  constexpr int kTaps = kTapsOfGroup<kStrided>;
  const uint64_t right = pixels_descriptor(shared_address(ring), SumRing::kPlane);
  int shifts[kTaps];
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    const int tap = group * kTaps + i;
    shifts[i] = tap < c.kernel_y * c.kernel_x ? c.farthest - tap / c.kernel_x * c.pitch - tap % c.kernel_x : 0;
  }
  const bool has_taps = !kStrided || group * kTaps < c.kernel_y * c.kernel_x;
  int slot = 0;
  int place = 0;
  bool is_first = true;
  Stretch stretch;
  for (Stretches<Pass::kGradient> stretches(c); stretches.next(stretch);) {
    const int exponent = c.exponents[stretch.sample] + sample_exponent(s.magnitudes[stretch.sample]);
    float sums[kTaps][32];
    int summed = 0;
#pragma unroll 1
    for (int step = stretch.first - c.lead; step < stretch.first + stretch.count; ++step) {
      await_slot(barriers.full, slot);
      if (step >= stretch.first && has_taps) {
        if (summed == 0) {
#pragma unroll
          for (int i = 0; i < kTaps; ++i) {
#pragma unroll
            for (int j = 0; j < 32; ++j) sums[i][j] = 0.0f;
          }
        }
        const uint8_t* const stage = stages + slot % kStages * kStage + warp * 2 * kStageEight;
        uint64_t from[kTaps];
#pragma unroll
        for (int i = 0; i < kTaps; ++i) {
          from[i] = right + (place - shifts[i] < 0 ? place - shifts[i] + SumRing::kPixels : place - shifts[i]);
        }
#pragma unroll 1
        for (int first = 0; first < kSlot; first += 32) {
          uint32_t left[2][4];
          load_pixels(stage + first * kEightBytes, left[0]);
          load_pixels(stage + (first + 16) * kEightBytes, left[1]);
          begin_products();
#pragma unroll
          for (int i = 0; i < kTaps; ++i) {
            multiply_pixels(sums[i], left[0], from[i] + first);
            multiply_pixels(sums[i], left[1], from[i] + first + 16);
          }
          commit_products();
          await_products<0>();
        }
        ++summed;
        if (summed == kSummedSlots || step + 1 == stretch.first + stretch.count) {
          add_sums<kStrided>(s, sums, group, exponent, is_first);
          is_first = false;
          summed = 0;
        }
      }
      if (lane == 0) barrier_arrive(barriers.done + slot % kSlotBarriers);
      ++slot;
      place += kSlot;
      if (place >= SumRing::kPixels) place -= SumRing::kPixels;
    }
  }
}

// Grid (multiprocessors / phases, or steps where these are fewer; phases).
template <bool kStrided>
__global__ void __launch_bounds__(kSumThreads, 1)
    sum_weight_gradient(const __grid_constant__ SumsOfPhases<kStrided> sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const WeightSums& s = sums.of_phase[kStrided ? blockIdx.y : 0];
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ SlotBarriers barriers;
  uint8_t* const stages = shared + SumRing::kBytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlotBarriers; ++i) {
      barrier_init(barriers.full + i, 2 * kCopyWarps);
      barrier_init(barriers.done + i, 4 * kSumGroups);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x / 128 == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
    bring_slots(s, shared, stages, barriers);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 136;");
    sum_slots<kStrided>(s, shared, stages, barriers, __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128 - 1, 0));
  }
#endif
}

// Grid (taps * kTapSums / 256): adds the blocks' sums in order.
__global__ void __launch_bounds__(256) add_weight_sums(const float* partial, int blocks, int taps, int in, int out,
                                                       float* dweight) {
  const int at = static_cast<int>(blockIdx.x) * 256 + static_cast<int>(threadIdx.x);
  const int tap = at / kTapSums;
  const int source = at / kMostChannels % kMostChannels;
  const int target = at % kMostChannels;
  if (source >= in || target >= out) return;
  float sum = 0.0f;
  for (int block = 0; block < blocks; ++block) sum += partial[static_cast<int64_t>(block) * taps * kTapSums + at];
  dweight[(static_cast<int64_t>(source) * out + target) * taps + tap] = sum;
}

// Chooses and launches the convolution on tensor cores.

constexpr int64_t kFewestPixels = 65536;  // of all images, below which torch convolves

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Pixels from a row of x to the next, on its line: behind a row lie the zeros that the taps of a phase reach.
inline int64_t line_pitch(const DenseConvolution& convolution) {
  return int64_t{convolution.width} + convolution.phase_taps_x() - 1;
}

// The same of the gradient's halves: eights of pixels lie within one row.
inline int64_t gradient_pitch(const DenseConvolution& convolution) { return ceil_div(line_pitch(convolution), 8) * 8; }

// Of a phase.
inline int64_t farthest_tap(const DenseConvolution& convolution, int64_t pitch) {
  return (convolution.phase_taps_y() - 1) * pitch + convolution.phase_taps_x() - 1;
}

// Whether there are kernels for the strides, and taps of all phases fit where these keep them.
inline bool suits_strides(const DenseConvolution& convolution) {
  if (convolution.kernel_y < convolution.stride_y || convolution.kernel_x < convolution.stride_x) return false;
  if (convolution.phase_taps_y() * convolution.kernel_x > kMostTaps) return false;
  if (convolution.kernel_y * convolution.kernel_x > kMostGatheredTaps) return false;
  return !convolution.is_strided() || (convolution.stride_y <= 2 && convolution.stride_x == kStride);
}

bool suits_tensor_cores(const DenseConvolution& convolution, int device) {
  constexpr int64_t kMostSamples = 65535;       // by the grid of gradient_halves
  constexpr int64_t kMostPixels = 1 << 20;      // that inverse_pitch divides,
  constexpr int64_t kMostPitch = 4000;          // by so many at most
  const int64_t pitch = gradient_pitch(convolution);
  if (convolution.samples < 1 || convolution.samples > kMostSamples) return false;
  if (convolution.in < 1 || convolution.in > kMostChannels || convolution.out > kMostChannels) return false;
  if (!suits_strides(convolution)) return false;
  if (farthest_tap(convolution, pitch) > Ring<Pass::kForward>::kFarthest) return false;
  if (line_pitch(convolution) < 2 || pitch > kMostPitch) return false;
  if ((convolution.height + convolution.phase_taps_y()) * pitch > kMostPixels) return false;
  if (convolution.fine_plane() < kShortRow) return false;  // short_row_sums reads rows without a pitch
  if (convolution.samples * convolution.fine_plane() < kFewestPixels) return false;
  return device_attribute(cudaDevAttrComputeCapabilityMajor, device) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor, device) == 0;
}

inline int forward_steps(const DenseConvolution& convolution) {
  const int64_t rows = int64_t{convolution.height} + convolution.phase_taps_y() - 1;
  return static_cast<int>(ceil_div(rows * line_pitch(convolution), kSlot));
}

// Blocks that correlate, in each of `rows` of a grid: one a multiprocessor.
inline int64_t correlating_blocks(int64_t steps, int device, int rows = 1) {
  const int64_t processors = device_attribute(cudaDevAttrMultiProcessorCount, device);
  const int64_t of_row = processors > rows ? processors / rows : 1;
  return steps < of_row ? steps : of_row;
}

int64_t moment_parts(const DenseConvolution& convolution, int device) {
  const int64_t steps = convolution.samples * forward_steps(convolution);
  const int64_t of_block = steps / correlating_blocks(steps, device, convolution.stride_y);
  return convolution.stride_y * kMultiplyGroups * (ceil_div(forward_steps(convolution), of_block) + 1);
}

inline int64_t weight_bytes(const DenseConvolution& convolution) {
  constexpr int64_t kOfExponents = kMostChannels * sizeof(int);
  return int64_t{convolution.kernel_y} * convolution.kernel_x * kTapBytes + kOfExponents;
}

int64_t convolve_scratch(const DenseConvolution& convolution) { return weight_bytes(convolution); }

// What the convolution and the gradient of its input have in common.
inline Correlation correlation_of(const DenseConvolution& convolution, int64_t pitch, const uint8_t* scratch) {
  Correlation c = {};
  c.samples = convolution.samples;
  c.kernel_y = convolution.kernel_y;
  c.kernel_x = convolution.kernel_x;
  c.pitch = static_cast<int>(pitch);
  c.inverse_pitch = static_cast<unsigned>(ceil_div(int64_t{1} << 32, pitch));
  c.farthest = static_cast<int>(farthest_tap(convolution, pitch));
  c.lead = static_cast<int>(ceil_div(c.farthest, kSlot));
  c.weights = scratch;
  c.weight_exponents = reinterpret_cast<const int*>(scratch + weight_bytes(convolution)) - kMostChannels;
  c.height = convolution.height;
  c.width = convolution.width;
  return c;
}

template <Pass kPass>
LaunchStatus launch_correlate(const Correlation& c, int device, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(correlate<kPass>),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kCorrelateShared<kPass>);
  if (error != cudaSuccess) return {"correlate", cudaGetErrorString(error)};
  const unsigned blocks = static_cast<unsigned>(correlating_blocks(c.samples * c.steps, device));
  correlate<kPass><<<blocks, kCorrelateThreads, kCorrelateShared<kPass>, stream>>>(c);
  return launched("correlate");
}

inline Phases phases_of(const Correlation& c, const DenseConvolution& convolution) {
  return {c, convolution.stride_y, static_cast<int>(convolution.fine_height()),
          static_cast<int>(convolution.fine_width())};
}

template <Pass kPass>
LaunchStatus launch_correlate_phases(const Phases& phases, int device, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(correlate_phases<kPass>),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kCorrelateShared<kPass>);
  if (error != cudaSuccess) return {"correlate_phases", cudaGetErrorString(error)};
  const int64_t steps = phases.line.samples * phases.line.steps;
  const dim3 grid(static_cast<unsigned>(correlating_blocks(steps, device, phases.stride_y)),
                  static_cast<unsigned>(phases.stride_y));
  correlate_phases<kPass><<<grid, kCorrelateThreads, kCorrelateShared<kPass>, stream>>>(phases);
  return launched("correlate_phases");
}

LaunchStatus launch_gather_phases(const Phases& phases, int device, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(gather_phases),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kGatherShared);
  if (error != cudaSuccess) return {"gather_phases", cudaGetErrorString(error)};
  const unsigned blocks = static_cast<unsigned>(correlating_blocks(phases.line.samples * phases.line.steps, device));
  gather_phases<<<blocks, kGatherThreads, kGatherShared, stream>>>(phases);
  return launched("gather_phases");
}

LaunchStatus launch_prepare_weights(const Taps& taps, uint8_t* scratch, cudaStream_t stream) {
  int* const exponents = reinterpret_cast<int*>(scratch + int64_t{taps.count} * kTapBytes);
  prepare_weights<<<kMostChannels, 128, 0, stream>>>(taps, scratch, exponents);
  return launched("prepare_weights");
}

LaunchStatus launch_convolve(const float* x, const float* weight, const float* bias,
                             const DenseConvolution& convolution, float* z, float* moments, unsigned* magnitudes,
                             uint8_t* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int taps = convolution.kernel_y * convolution.kernel_x;
  LaunchStatus status = launch_prepare_weights({weight, taps, int64_t{convolution.out} * taps, taps, convolution.in,
                                                convolution.out, false},
                                               scratch, stream);
  if (status.kernel != nullptr) return status;
  Correlation c = correlation_of(convolution, line_pitch(convolution), scratch);
  c.sources = convolution.in;
  c.targets = convolution.out;
  c.steps = forward_steps(convolution);
  c.x = x;
  c.magnitudes = magnitudes;
  c.bias = bias;
  c.target = z;
  c.target_plane = convolution.fine_plane();
  c.target_pitch = convolution.pitch();
  c.moments = reinterpret_cast<Moments*>(moments);
  c.parts = static_cast<int>(moment_parts(convolution, device));
  const int64_t of_channels = c.samples * c.targets * c.parts * static_cast<int64_t>(sizeof(Moments));
  if (cudaMemsetAsync(moments, 0, of_channels, stream) != cudaSuccess ||
      cudaMemsetAsync(magnitudes, 0, c.samples * sizeof(unsigned), stream) != cudaSuccess) {
    return launched("clearing moments");
  }
  if (convolution.is_strided()) {
    const Phases phases = phases_of(c, convolution);
    status = launch_correlate_phases<Pass::kForward>(phases, device, stream);
    if (status.kernel != nullptr) return status;
    return launch_correlate_phases<Pass::kRescue>(phases, device, stream);
  }
  status = launch_correlate<Pass::kForward>(c, device, stream);
  if (status.kernel != nullptr) return status;
  return launch_correlate<Pass::kRescue>(c, device, stream);
}

// Where the parts of the backward's scratch memory lie.
struct BackwardLayout {
  Shape shape;
  int64_t pitch;
  int64_t steps;  // of an image of x
  int64_t plane;  // of a phase of the gradient's halves: what any tap reaches from whole slots
  int64_t tiles;
  int64_t taps;
  int64_t phases;
  int64_t blocks;  // that sum the weight's gradient, of a phase

  BackwardLayout(const DenseBackward& backward, int device) {
    const DenseConvolution& convolution = backward.convolution;
    shape = {convolution.samples, convolution.out, backward.groups, convolution.fine_plane(), convolution.pitch()};
    pitch = gradient_pitch(convolution);
    steps = ceil_div(convolution.height * pitch, kSlot);
    plane = steps * kSlot + farthest_tap(convolution, pitch);
    tiles = convolution.stride_y * ceil_div(plane * convolution.stride_x, kHalvesTile);
    taps = int64_t{convolution.kernel_y} * convolution.kernel_x;
    phases = convolution.phases();
    blocks = correlating_blocks(convolution.samples * steps, device, convolution.phases());
  }

  int64_t rows() const { return shape.samples * shape.channels; }
  int64_t means() const { return aligned<RowSums>(rows() * (1 + row_parts(shape.spatial).count)); }
  int64_t exponents() const { return means() + aligned<GroupMeans>(shape.samples * shape.groups); }
  int64_t shifts() const { return exponents() + aligned<int>(shape.samples); }
  int64_t weights() const { return shifts() + aligned<float>(rows() * tiles); }
  int64_t partial() const { return weights() + aligned<uint8_t>(taps * kTapBytes) + aligned<int>(kMostChannels); }
  int64_t halves() const { return partial() + aligned<float>(blocks * taps * kTapSums); }
  int64_t phase_bytes() const { return shape.samples * kEights * plane * kEightBytes; }
  int64_t bytes() const { return halves() + phases * phase_bytes(); }

  // Bytes of so many, up to where anything may begin.
  template <typename T>
  static int64_t aligned(int64_t count) {
    return ceil_div(count * static_cast<int64_t>(sizeof(T)), 16) * 16;
  }
};

int64_t gradients_scratch(const DenseBackward& backward, int device) {
  return BackwardLayout(backward, device).bytes();
}

inline LaunchStatus launch_halves(const DenseBackward& backward, const BackwardLayout& layout, uint8_t* scratch,
                                  float* dbias, cudaStream_t stream) {
  GradientHalves g = {};
  g.dy = backward.dy;
  g.z = backward.z;
  g.pitch_of_z = layout.shape.pitch;
  g.weight = backward.norm_weight;
  g.mean = backward.mean;
  g.rstd = backward.rstd;
  g.means = reinterpret_cast<const GroupMeans*>(scratch + layout.means());
  g.channels = layout.shape.channels;
  g.groups = layout.shape.groups;
  g.width = static_cast<int>(backward.convolution.fine_width());
  g.height = static_cast<int>(layout.shape.spatial / g.width);
  g.pitch = static_cast<int>(layout.pitch);
  g.inverse_pitch = static_cast<unsigned>(ceil_div(int64_t{1} << 32, layout.pitch));
  g.plane = static_cast<int>(layout.plane);
  g.exponents = reinterpret_cast<int*>(scratch + layout.exponents());
  g.halves = scratch + layout.halves();
  g.sums = reinterpret_cast<float*>(scratch + layout.shifts());
  g.stride_y = backward.convolution.stride_y;
  const dim3 grid(static_cast<unsigned>(layout.tiles), kEights, static_cast<unsigned>(layout.shape.samples));
  if (backward.convolution.is_strided()) gradient_halves<true><<<grid, kHalvesThreads, 0, stream>>>(g, backward.bias);
  else gradient_halves<false><<<grid, kHalvesThreads, 0, stream>>>(g, backward.bias);
  const LaunchStatus status = launched("gradient_halves");
  if (status.kernel != nullptr || dbias == nullptr) return status;
  return launch_shift_gradient(nullptr, g.sums, layout.shape, layout.tiles, dbias, stream);
}

// The gradient's correlation, for the sums of phase (py, px): with the line and the taps of this phase alone.
inline WeightSums sums_of_phase(const DenseBackward& backward, const BackwardLayout& layout,
                                const Correlation& gradient, float* partial, int py, int px) {
  DenseConvolution phase = backward.convolution;
  phase.kernel_y = (phase.kernel_y - py + phase.stride_y - 1) / phase.stride_y;
  phase.kernel_x = (phase.kernel_x - px + phase.stride_x - 1) / phase.stride_x;
  phase.stride_y = phase.stride_x = 1;
  const DenseConvolution& all = backward.convolution;
  Correlation c = gradient;
  c.kernel_y = phase.kernel_y;
  c.kernel_x = phase.kernel_x;
  c.farthest = static_cast<int>(farthest_tap(phase, layout.pitch));
  c.lead = static_cast<int>(ceil_div(c.farthest, kSlot));
  c.planes += (py * all.stride_x + px) * layout.phase_bytes();
  return {c, backward.x, all.in, backward.magnitudes, partial, static_cast<int>(layout.taps), py * all.kernel_x + px,
          all.stride_y * all.kernel_x};
}

template <bool kStrided>
LaunchStatus launch_sums_of_phases(const DenseBackward& backward, const BackwardLayout& layout,
                                   const Correlation& gradient, float* partial, cudaStream_t stream) {
  const DenseConvolution& convolution = backward.convolution;
  SumsOfPhases<kStrided> sums = {};
  for (int phase = 0; phase < convolution.phases(); ++phase) {
    sums.of_phase[phase] = sums_of_phase(backward, layout, gradient, partial, phase / convolution.stride_x,
                                         phase % convolution.stride_x);
  }
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(sum_weight_gradient<kStrided>),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kSumShared);
  if (error != cudaSuccess) return {"sum_weight_gradient", cudaGetErrorString(error)};
  const dim3 grid(static_cast<unsigned>(layout.blocks), static_cast<unsigned>(layout.phases));
  sum_weight_gradient<kStrided><<<grid, kSumThreads, kSumShared, stream>>>(sums);
  return launched("sum_weight_gradient");
}

inline LaunchStatus launch_weight_sums(const DenseBackward& backward, const BackwardLayout& layout,
                                       const Correlation& gradient, float* partial, float* dweight,
                                       cudaStream_t stream) {
  const DenseConvolution& convolution = backward.convolution;
  const LaunchStatus status =
      convolution.is_strided() ? launch_sums_of_phases<true>(backward, layout, gradient, partial, stream)
                               : launch_sums_of_phases<false>(backward, layout, gradient, partial, stream);
  if (status.kernel != nullptr) return status;
  const int taps = static_cast<int>(layout.taps);
  add_weight_sums<<<static_cast<unsigned>(taps * kTapSums / 256), 256, 0, stream>>>(
      partial, static_cast<int>(layout.blocks), taps, convolution.in, convolution.out, dweight);
  return launched("add_weight_sums");
}

LaunchStatus launch_gradients(const DenseBackward& backward, const DenseGradients& gradients, uint8_t* scratch,
                              int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const DenseConvolution& convolution = backward.convolution;
  const BackwardLayout layout(backward, device);
  RowSums* const row_sums = reinterpret_cast<RowSums*>(scratch);
  LaunchStatus status = launch_means(backward.dy, backward.z, backward.bias, backward.norm_weight, backward.mean,
                                     backward.rstd, layout.shape, row_sums, row_sums + layout.rows(),
                                     reinterpret_cast<GroupMeans*>(scratch + layout.means()), stream);
  if (status.kernel != nullptr) return status;
  if (gradients.x != nullptr || gradients.weight != nullptr || gradients.bias != nullptr) {
    status = launch_halves(backward, layout, scratch, gradients.bias, stream);
    if (status.kernel != nullptr) return status;
  }
  Correlation c = correlation_of(convolution, layout.pitch, scratch + layout.weights());
  c.sources = convolution.out;
  c.targets = convolution.in;
  c.steps = static_cast<int>(layout.steps);
  c.planes = scratch + layout.halves();
  c.plane = static_cast<int>(layout.plane);
  c.exponents = reinterpret_cast<const int*>(scratch + layout.exponents());
  c.target = gradients.x;
  c.target_plane = int64_t{convolution.height} * convolution.width;
  c.target_pitch = c.target_plane;
  if (gradients.x != nullptr) {
    const int taps = static_cast<int>(layout.taps);
    status = launch_prepare_weights({backward.weight, int64_t{convolution.out} * taps, taps, taps, convolution.out,
                                     convolution.in, !convolution.is_strided()},
                                    scratch + layout.weights(), stream);
    if (status.kernel != nullptr) return status;
    status = convolution.is_strided() ? launch_gather_phases(phases_of(c, convolution), device, stream)
                                      : launch_correlate<Pass::kGradient>(c, device, stream);
    if (status.kernel != nullptr) return status;
  }
  if (gradients.weight != nullptr) {
    status = launch_weight_sums(backward, layout, c, reinterpret_cast<float*>(scratch + layout.partial()),
                                gradients.weight, stream);
    if (status.kernel != nullptr) return status;
  }
  return launch_affine_gradients(row_sums, layout.shape, gradients.norm_weight, gradients.norm_bias, stream);
}

#else  // no tensor cores of compute capability 9.0
bool suits_tensor_cores(const DenseConvolution& /*convolution*/, int /*device*/) { return false; }

int64_t moment_parts(const DenseConvolution& /*convolution*/, int /*device*/) { return 0; }

int64_t convolve_scratch(const DenseConvolution& /*convolution*/) { return 0; }

LaunchStatus launch_convolve(const float* /*x*/, const float* /*weight*/, const float* /*bias*/,
                             const DenseConvolution& /*convolution*/, float* /*z*/, float* /*moments*/,
                             unsigned* /*magnitudes*/, uint8_t* /*scratch*/, int /*device*/, void* /*stream*/) {
  return {"correlate", "it was not compiled"};
}

int64_t gradients_scratch(const DenseBackward& /*backward*/, int /*device*/) { return 0; }

LaunchStatus launch_gradients(const DenseBackward& /*backward*/, const DenseGradients& /*gradients*/,
                              uint8_t* /*scratch*/, int /*device*/, void* /*stream*/) {
  return {"sum_weight_gradient", "it was not compiled"};
}
#endif

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

Shape shape_of(const Tensor& x, const Tensor& weight, int64_t groups) {
  STD_TORCH_CHECK(x.dim() >= 2, "x must be (batch, channels, *spatial), got ", x.dim(), " dimension(s)");
  const int64_t samples = x.size(0);
  const int64_t channels = x.size(1);
  STD_TORCH_CHECK(groups > 0 && channels > 0 && channels % groups == 0, channels, " channels cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(weight.dim() == 1 && weight.size(0) == channels, "weight must have ", channels, " elements");
  int64_t spatial = 1;
  for (int64_t axis = 2; axis < x.dim(); ++axis) spatial *= x.size(axis);
  return {samples, channels, groups, spatial, spatial};
}

Shift shift_of(const Tensor& bias, const Tensor& z, const Shape& shape) {
  check_float_input(bias, z, "the bias of the convolution");
  STD_TORCH_CHECK(bias.numel() == shape.channels, "the bias of the convolution must have ", shape.channels,
                  " elements");
  return {input_floats(bias)};
}

// y like z, and statistics (2, batch, groups): mean and 1 / sqrt(variance + eps) of GELU, after the convolution's bias.
std::tuple<Tensor, Tensor> forward(const Tensor& z, const Tensor& convolution_bias, const Tensor& weight,
                                   const Tensor& bias, int64_t groups, double eps) {
  const Shape shape = shape_of(z, weight, groups);
  const Shift shift = shift_of(convolution_bias, z, shape);
  check_float_input(z, z, "z");
  check_float_input(weight, z, "weight");
  check_float_input(bias, z, "bias");
  STD_TORCH_CHECK(bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  Tensor y = torch::stable::empty_like(z);
  Tensor statistics = torch::stable::new_empty(z, {2, shape.samples, shape.groups});
  float* mean = output_floats(statistics);
  float* rstd = mean + shape.samples * shape.groups;
  Tensor scratch = torch::stable::new_empty(z, {forward_scratch(shape)});
  check_launch(launch_forward(input_floats(z), shift, input_floats(weight), input_floats(bias), shape,
                              static_cast<float>(eps), output_floats(y), mean, rstd, output_floats(scratch),
                              z.get_device_index(), current_stream(z)));
  return {y, statistics};
}

using Wanted = std::optional<Tensor>;

float* floats_or_null(Wanted& tensor) { return tensor ? output_floats(*tensor) : nullptr; }

// The wanted gradients: of z, of the group norm's weight and bias, and of the convolution's bias, which is added to z.
std::tuple<Wanted, Wanted, Wanted, Wanted> backward(const Tensor& dy, const Tensor& z,
                                                    const Tensor& convolution_bias, const Tensor& weight,
                                                    const Tensor& statistics, int64_t groups, bool wants_z,
                                                    bool wants_weight, bool wants_bias, bool wants_shift) {
  const Shape shape = shape_of(z, weight, groups);
  const Shift shift = shift_of(convolution_bias, z, shape);
  check_float_input(dy, z, "the gradient of y");
  check_float_input(z, z, "z");
  check_float_input(weight, z, "weight");
  check_float_input(statistics, z, "statistics");
  STD_TORCH_CHECK(dy.numel() == z.numel(), "the gradient of y must have the shape of y");
  STD_TORCH_CHECK(statistics.numel() == 2 * shape.samples * shape.groups, "statistics must be (2, batch, groups)");
  STD_TORCH_CHECK(wants_z || !wants_shift, "the gradient of the convolution's bias wants that of z");
  Wanted dz, dweight, dbias, dshift;
  if (wants_z) dz = torch::stable::empty_like(z);
  if (wants_weight) dweight = torch::stable::empty_like(weight);
  if (wants_bias) dbias = torch::stable::empty_like(weight);
  if (wants_shift) dshift = torch::stable::empty_like(weight);
  const Gradients gradients = {floats_or_null(dz), floats_or_null(dweight), floats_or_null(dbias),
                               floats_or_null(dshift)};
  Tensor scratch = torch::stable::new_empty(z, {backward_scratch(shape)});
  const float* mean = input_floats(statistics);
  check_launch(launch_backward(input_floats(dy), input_floats(z), shift, input_floats(weight), mean,
                               mean + shape.samples * shape.groups, shape, gradients, output_floats(scratch),
                               z.get_device_index(), current_stream(z)));
  return {dz, dweight, dbias, dshift};
}

// The sizes of a transposed convolution of x by `weight` (in, out, kernel_y, kernel_x).
DenseConvolution dense_convolution_of(const Tensor& x, const Tensor& weight, int64_t stride_y, int64_t stride_x) {
  STD_TORCH_CHECK(x.dim() == 4 && weight.dim() == 4 && x.size(1) == weight.size(0), "x must be (batch, ",
                  weight.size(0), " channels, height, width)");
  constexpr int64_t kMost = 1 << 20;
  const bool is_small = x.size(1) < kMost && weight.size(1) < kMost && x.size(2) < kMost && x.size(3) < kMost &&
                        weight.size(2) < kMost && weight.size(3) < kMost && stride_y > 0 && stride_y < kMost &&
                        stride_x > 0 && stride_x < kMost;
  if (!is_small) return {0, 0, 0, 0, 0, 0, 0, 1, 1};
  return {x.size(0),
          static_cast<int>(x.size(1)),
          static_cast<int>(weight.size(1)),
          static_cast<int>(x.size(2)),
          static_cast<int>(x.size(3)),
          static_cast<int>(weight.size(2)),
          static_cast<int>(weight.size(3)),
          static_cast<int>(stride_y),
          static_cast<int>(stride_x)};
}

// y and what its backward wants: z without the bias (batch, out, pitch), statistics (2, batch, groups), and every
// sample's largest magnitude, as bits. Nothing where tensor cores do not suit.
std::tuple<Wanted, Wanted, Wanted, Wanted> convolve(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                    const Tensor& norm_weight, const Tensor& norm_bias,
                                                    int64_t stride_y, int64_t stride_x, int64_t groups, double eps) {
  check_float_input(x, x, "x");
  check_float_input(weight, x, "the weight of the convolution");
  check_float_input(norm_weight, x, "weight");
  check_float_input(norm_bias, x, "bias");
  const DenseConvolution convolution = dense_convolution_of(x, weight, stride_y, stride_x);
  const int device = x.get_device_index();
  if (!suits_tensor_cores(convolution, device)) return {};
  Tensor y = torch::stable::new_empty(
      x, {x.size(0), weight.size(1), convolution.fine_height(), convolution.fine_width()});
  Shape shape = shape_of(y, norm_weight, groups);
  shape.pitch = convolution.pitch();
  STD_TORCH_CHECK(norm_bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  const Shift shift = shift_of(bias, x, shape);
  const int64_t parts = moment_parts(convolution, device);
  Tensor z = torch::stable::new_empty(x, {shape.samples, shape.channels, shape.pitch});
  Tensor moments = torch::stable::new_empty(x, {shape.samples, shape.channels, parts, 3});
  Tensor magnitudes = torch::stable::new_empty(x, {shape.samples}, torch::headeronly::ScalarType::Int);
  Tensor scratch =
      torch::stable::new_empty(x, {convolve_scratch(convolution)}, torch::headeronly::ScalarType::Byte);
  Tensor statistics = torch::stable::new_empty(x, {2, shape.samples, shape.groups});
  float* mean = output_floats(statistics);
  check_launch(launch_convolve(input_floats(x), input_floats(weight), shift.values, convolution, output_floats(z),
                               output_floats(moments), static_cast<unsigned*>(magnitudes.data_ptr()),
                               static_cast<uint8_t*>(scratch.data_ptr()), device, current_stream(x)));
  check_launch(launch_forward_gathered(input_floats(z), shift, input_floats(moments), parts, input_floats(norm_weight),
                                       input_floats(norm_bias), shape, static_cast<float>(eps), output_floats(y), mean,
                                       mean + shape.samples * shape.groups, device, current_stream(x)));
  return {y, z, statistics, magnitudes};
}

// The wanted gradients: of x, of the convolution's weight and bias, of the group norm's weight and bias.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted> gradients(
    const Tensor& dy, const Tensor& x, const Tensor& z, const Tensor& weight, const Tensor& bias,
    const Tensor& norm_weight, const Tensor& statistics, const Tensor& magnitudes, int64_t stride_y, int64_t stride_x,
    int64_t groups, bool wants_x, bool wants_weight, bool wants_bias, bool wants_norm_weight, bool wants_norm_bias) {
  const Shape shape = shape_of(dy, norm_weight, groups);
  check_float_input(dy, x, "the gradient of y");
  const float* mean = input_floats(statistics);
  const DenseBackward backward = {dense_convolution_of(x, weight, stride_y, stride_x),
                                  groups,
                                  input_floats(dy),
                                  input_floats(x),
                                  input_floats(z),
                                  input_floats(weight),
                                  shift_of(bias, x, shape),
                                  input_floats(norm_weight),
                                  mean,
                                  mean + shape.samples * shape.groups,
                                  static_cast<const unsigned*>(magnitudes.data_ptr())};
  Wanted dx, dweight, dbias, dnorm_weight, dnorm_bias;
  if (wants_x) dx = torch::stable::empty_like(x);
  if (wants_weight) dweight = torch::stable::empty_like(weight);
  if (wants_bias) dbias = torch::stable::empty_like(norm_weight);
  if (wants_norm_weight) dnorm_weight = torch::stable::empty_like(norm_weight);
  if (wants_norm_bias) dnorm_bias = torch::stable::empty_like(norm_weight);
  const DenseGradients found = {floats_or_null(dx), floats_or_null(dweight), floats_or_null(dbias),
                                floats_or_null(dnorm_weight), floats_or_null(dnorm_bias)};
  const int device = x.get_device_index();
  Tensor scratch =
      torch::stable::new_empty(x, {gradients_scratch(backward, device)}, torch::headeronly::ScalarType::Byte);
  check_launch(launch_gradients(backward, found, static_cast<uint8_t*>(scratch.data_ptr()), device,
                                current_stream(x)));
  return {dx, dweight, dbias, dnorm_weight, dnorm_bias};
}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def(
      "forward(Tensor z, Tensor convolution_bias, Tensor weight, Tensor bias, int groups, float eps) -> "
      "(Tensor, Tensor)");
  m.def(
      "backward(Tensor dy, Tensor z, Tensor convolution_bias, Tensor weight, Tensor statistics, int groups, "
      "bool wants_z, bool wants_weight, bool wants_bias, bool wants_shift) -> (Tensor?, Tensor?, Tensor?, Tensor?)");
  m.def(
      "gradients(Tensor dy, Tensor x, Tensor z, Tensor weight, Tensor bias, Tensor norm_weight, Tensor statistics, "
      "Tensor magnitudes, int stride_y, int stride_x, int groups, bool wants_x, bool wants_weight, bool wants_bias, "
      "bool wants_norm_weight, bool wants_norm_bias) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
  m.def(
      "convolve(Tensor x, Tensor weight, Tensor bias, Tensor norm_weight, Tensor norm_bias, int stride_y, "
      "int stride_x, int groups, float eps) -> (Tensor?, Tensor?, Tensor?, Tensor?)");
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
  m.impl("gradients", TORCH_BOX(&OP_NAMESPACE::gradients));
  m.impl("convolve", TORCH_BOX(&OP_NAMESPACE::convolve));
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


OPERATORS = build_operators(
    "conv_transpose2d_gelu_group_norm", LAUNCHERS, CUDA_SOURCE, BINDING_SOURCE, flags_of_sm_90a()
)


class FusedFunction(torch.autograd.Function):
    """The convolution and the kernels behind it as one differentiable operation."""

    @staticmethod
    def forward(ctx, x, weight, bias, norm_weight, norm_bias, stride, groups, eps):
        """Return y (batch, out_channels, *fine); keeps x, z and the statistics (2, batch, groups)."""
        x, weight, norm_weight = x.contiguous(), weight.contiguous(), norm_weight.contiguous()
        bias, norm_bias = bias.contiguous(), norm_bias.contiguous()
        y, z, statistics, magnitudes = OPERATORS.convolve(x, weight, bias, norm_weight, norm_bias, *stride, groups, eps)
        if y is None:
            z, magnitudes = torch.conv_transpose2d(x, weight, None, stride).contiguous(), None
            y, statistics = OPERATORS.forward(z, bias, norm_weight, norm_bias, groups, eps)
        ctx.save_for_backward(x, weight, bias, norm_weight, z, statistics, magnitudes)
        ctx.stride, ctx.groups = stride, groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return those gradients that autograd asks for."""
        x, weight, bias, norm_weight, z, statistics, magnitudes = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, wants_norm_weight, wants_norm_bias = ctx.needs_input_grad[:5]
        if magnitudes is not None:
            gradients = OPERATORS.gradients(
                dy.contiguous(),
                x,
                z,
                weight,
                bias,
                norm_weight,
                statistics,
                magnitudes,
                *ctx.stride,
                ctx.groups,
                *ctx.needs_input_grad[:5],
            )
            return *gradients, None, None, None
        dz, dnorm_weight, dnorm_bias, dbias = OPERATORS.backward(
            dy.contiguous(),
            z,
            bias,
            norm_weight,
            statistics,
            ctx.groups,
            wants_x or wants_weight or wants_bias,
            wants_norm_weight,
            wants_norm_bias,
            wants_bias,
        )
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
        return FusedFunction.apply(
            x,
            self.conv_transpose.weight,
            self.conv_transpose.bias,
            self.group_norm.weight,
            self.group_norm.bias,
            self.conv_transpose.stride,
            self.group_norm.num_groups,
            self.group_norm.eps,
        )

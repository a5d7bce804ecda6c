# Rendered from templates/gemm_bias_add_hardtanh_mish_group_norm: change that, not this file, and render again.
# template: gemm_bias_add_hardtanh_mish_group_norm
# parameters: {"block_k":16,"block_m":128,"block_n":128,"cluster_m":1,"cluster_n":2,"gemm":"aten","partial_depth":1024,"promoted_steps":4,"rows_in_flight":2,"rows_per_block":16,"split_from":30,"stages":7,"thread_m":8,"thread_n":8,"threads":256,"values_per_thread":4}
# digest: sha256:43f7119db649da9a24d90d384bb53b0536d8f85508093b466f286fb5e72d0ead
"""A linear layer, a bias, Hardtanh, Mish and group normalisation, forward and backward.

Computes, for x of shape (batch, in_features), float32, and each group of neighbouring features of each sample:

    z = x @ gemm.weight.T + gemm.bias + bias            (batch, out_features); bias broadcasts
    a = mish(clamp(z, -1, 1)),  mish(h) = h * tanh(log(1 + exp(h)))
    y = (a - mean) / sqrt(variance + eps) * groupnorm.weight + groupnorm.bias

and the gradients of x, gemm.weight (out_features, in_features), gemm.bias, bias, groupnorm.weight and groupnorm.bias
(out_features,), all float32.

Replaces: the addition, ``torch.nn.Hardtanh``, ``torch.nn.Mish``, ``torch.nn.GroupNorm`` and their backwards
(``hardtanh``, ``mish``, ``native_group_norm``), and the addition in ``torch.nn.Linear``. The product itself stays
torch's (``mm``), as do the two of the backward: they follow ``torch.backends.cuda.matmul.allow_tf32``, off by default.

Why that should be faster: behind the product eager PyTorch reads and writes (batch, out_features) once for every
operator. Here one launch reads the product once and writes y once, and one launch reads dy and the product once and
writes dz once: of what lies between, only the product and two numbers a group are kept. A thread stays on its
columns and walks down 16 rows, so that the columns' parameters are read, and the gradients of the
parameters summed, in registers.

Forward:   normalise_short_groups      grid (columns / columns of a block * rows / 16), block (32 .. 256)
Backward:  differentiate_short_groups  the same grid and block
           add_chunks                  grid (columns / 32), block (32, 8)
Groups of more than 128 features take kernels with one block a group instead, which read it twice:
Forward:   normalise_long_groups       grid (rows * groups), block (64 .. 256)
Backward:  differentiate_long_groups   grid (rows * groups), block (64 .. 256)
           sum_chunks_of_columns       grid (columns / 256 * rows / 16), block (256)

Every reduction has a fixed order (no atomics): the same input gives the same bits.
"""

import hashlib

import torch
import torch.nn as nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

LAUNCHERS = r"""
#include <cstdint>

namespace OP_NAMESPACE {

// What a launcher reports: the kernel that failed to launch and CUDA's words, or two null pointers.
struct LaunchStatus {
  const char* kernel;
  const char* message;
};

// A matrix (rows, columns), contiguous, normalised in groups of `columns / groups` neighbouring columns of one row.
struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t groups;
};

// What is added to the product: the linear layer's bias (columns), and one that broadcasts by strides of 0.
struct Biases {
  const float* linear;
  const float* added;
  int64_t row_stride;
  int64_t column_stride;
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  float* product;      // (rows, columns)
  float* weight;       // (columns), of the group norm
  float* bias;         // (columns), of the group norm
  float* linear_bias;  // (columns)
  float* added_bias;   // (columns); only for a bias of one row
};

// Floats of scratch memory that launch_backward wants.
int64_t backward_scratch(const Shape& shape);

// Writes y like the product, and mean and rstd of what is normalised, each (rows, groups).
LaunchStatus launch_forward(const float* product, const Biases& biases, const float* weight, const float* bias,
                            const Shape& shape, float eps, float* y, float* mean, float* rstd, int device,
                            void* stream);

// Writes (never accumulates) the wanted gradients; any gradient of a bias wants that of the product too.
LaunchStatus launch_backward(const float* dy, const float* product, const Biases& biases, const float* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream);

}  // namespace OP_NAMESPACE
"""

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

namespace OP_NAMESPACE {

constexpr int kThreads = 256;       // of a block behind the product
constexpr int kValues = 4;          // floats of one group that a thread holds
constexpr int kBatch = kValues;      // the same, by the name that shared pieces know
constexpr int64_t kRowsPerBlock = 16;
constexpr int kRowsInFlight = 2;    // of these, loaded together
constexpr bool kAddBiases = true;    // the product is bare

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

// z = product + linear bias + added bias;  h = Hardtanh(z) = z clamped to [-1, 1];  a = Mish(h) = h tanh(softplus(h)).
// With e = exp(h) and q = 1 / (e (e + 2) + 2): tanh(softplus(h)) = 1 - 2 q, and
// Mish'(h) = 1 - 2 q + 4 h e (1 + e) q^2. On [-1, 1] nothing overflows, and 1 - 2 q lies between 0.3 and 0.87.

// The same sum in the same order in forward and backward: both decide Hardtanh's edges on the same bits.
__device__ inline float biased(float product, float linear, float added) {
  if constexpr (kAddBiases) return (product + linear) + added;
  return product;
}

__device__ inline float biased_at(const float* product, const Biases& biases, int64_t row, int64_t column,
                                  int64_t columns) {
  const float value = product[row * columns + column];
  if constexpr (!kAddBiases) return value;
  return biased(value, biases.linear[column], biases.added[row * biases.row_stride + column * biases.column_stride]);
}

// Not by fminf and fmaxf, which would turn NaN into an edge.
__device__ inline float hardtanh(float z) { return z < -1.0f ? -1.0f : (z > 1.0f ? 1.0f : z); }

// a, and da/dz: 0 at Hardtanh's edges and beyond.
struct Activation {
  float value;
  float slope;
};

// Forward and backward must get the same bits of the value: where a group's values are equal, the last bit of a
// difference is blown up by 1 / sqrt(eps). The intrinsics keep the compiler from fusing it with what follows.
__device__ inline Activation activation_with_slope(float z) {
  const float h = hardtanh(z);
  const float e = expf(h);
  const float q = 1.0f / __fmaf_rn(e, e + 2.0f, 2.0f);
  const float slope = (1.0f - 2.0f * q) + 4.0f * h * e * (1.0f + e) * (q * q);
  return {__fmaf_rn(-2.0f * h, q, h), z <= -1.0f || z >= 1.0f ? 0.0f : slope};
}

__device__ inline float activation(float z) { return activation_with_slope(z).value; }

// Rows cut into equal chunks; the last may be shorter.
struct Chunks {
  int64_t count;
  int64_t rows;
};

// No more than this many: each leaves a row of partial sums to be added up.
constexpr int64_t kMaxChunks = 1024;

// Chunks of `shortest` rows, of more where there would be too many.
inline Chunks chunks_of(int64_t rows, int64_t shortest) {
  int64_t length = ceil_div(rows, kMaxChunks);
  if (length < shortest) length = shortest;
  return {ceil_div(rows, length), length};
}

// Short groups: a team of 1 to 32 neighbouring lanes owns a group's columns and walks down rows, so that what belongs
// to the columns is loaded, or summed, once and not once a row. A lane holds kValues of the columns, in vectors that
// interleave with those of its team.

// How teams cover the columns: a strip is what the teams of one block own.
struct Teams {
  int lanes;  // of a team; a power of two
  int threads;
  int64_t strips;
};

inline bool fits_a_team(const Shape& shape) {
  return shape.columns / shape.groups <= static_cast<int64_t>(kWarpSize) * kValues;
}

inline Teams teams_of(const Shape& shape) {
  const int64_t length = shape.columns / shape.groups;
  int lanes = 1;
  while (static_cast<int64_t>(lanes) * kValues < length) lanes *= 2;
  const int64_t wanted = ceil_div(shape.groups * lanes, kWarpSize) * kWarpSize;
  const int threads = static_cast<int>(wanted < kThreads ? wanted : kThreads);
  return {lanes, threads, ceil_div(shape.groups, threads / lanes)};
}

// This thread's place. A lane beyond the last group has a length of 0: it holds nothing, but takes part in shuffles.
struct Place {
  int64_t chunk;
  int group;
  int column;      // the group's first
  int length;      // of the group
  int lane;        // within the team
  int lanes;
};

__device__ inline Place place_of(const Shape& shape, const Teams& teams, int64_t block) {
  const int team = threadIdx.x / teams.lanes;
  const int64_t group = block % teams.strips * (blockDim.x / teams.lanes) + team;
  const int64_t length = shape.columns / shape.groups;
  const bool owns = group < shape.groups;
  return {block / teams.strips,
          static_cast<int>(group),
          owns ? static_cast<int>(group * length) : 0,
          owns ? static_cast<int>(length) : 0,
          static_cast<int>(threadIdx.x) % teams.lanes,
          teams.lanes};
}

// Where in its group value `index` of this lane lies; held only where that is below the group's length.
template <int kWidth>
__device__ inline int position_of(const Place& place, int index) {
  return (index / kWidth * place.lanes + place.lane) * kWidth + index % kWidth;
}

template <int kWidth>
__device__ inline bool holds(const Place& place, int index) {
  return position_of<kWidth>(place, index) < place.length;
}

// values = this lane's share of group[0 .. length), 0 where it holds none.
template <int kWidth>
__device__ inline void load_share(const float* group, const Place& place, float (&values)[kValues]) {
#pragma unroll
  for (int index = 0; index < kValues; index += kWidth) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[index + i] = 0.0f;
    if (holds<kWidth>(place, index)) load_vector<kWidth>(group + position_of<kWidth>(place, index), values + index);
  }
}

template <int kWidth>
__device__ inline void store_share(float* group, const Place& place, const float (&values)[kValues]) {
#pragma unroll
  for (int index = 0; index < kValues; index += kWidth) {
    if (holds<kWidth>(place, index)) store_vector<kWidth>(group + position_of<kWidth>(place, index), values + index);
  }
}

// The sum over the team, in every lane of it: a butterfly, so all lanes add the same pairs. All lanes of the warp call.
__device__ inline float team_sum(float value, int lanes) {
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    if (offset < lanes) value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ inline float reciprocal_deviation(float m2, float length, float eps) {
  return 1.0f / sqrtf(m2 / length + eps);
}

// Group norm of one row by teams, in registers.

// values = (values - mean) * rstd * weight + bias over the team's group; mean and rstd by two passes over registers.
// The values are taken relative to the group's first: the mean of equal ones is then exact, of which 1 / sqrt(eps)
// would blow up the last bit.
template <int kWidth>
__device__ inline void normalise_share(float (&values)[kValues], const float (&weight)[kValues],
                                       const float (&bias)[kValues], const Place& place, float eps, float& mean,
                                       float& rstd) {
  const float length = static_cast<float>(place.length);
  const float first = __shfl_sync(kAllLanes, values[0], 0, place.lanes);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    values[i] -= first;
    if (holds<kWidth>(place, i)) sum += values[i];
  }
  const float mean_beyond_first = team_sum(sum, place.lanes) / length;
  mean = first + mean_beyond_first;
  float m2 = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    values[i] -= mean_beyond_first;
    if (holds<kWidth>(place, i)) m2 += values[i] * values[i];
  }
  rstd = reciprocal_deviation(team_sum(m2, place.lanes), length, eps);
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = values[i] * (rstd * weight[i]) + bias[i];
}

// The added bias of one row; its column stride is 1 or 0.
template <int kWidth>
__device__ inline void load_added_bias(const Biases& biases, int64_t row, const Place& place,
                                       float (&values)[kValues]) {
  const float* source = biases.added + row * biases.row_stride;
  if (biases.column_stride != 0) {
    load_share<kWidth>(source + place.column, place, values);
  } else {
#pragma unroll
    for (int index = 0; index < kValues; ++index) values[index] = *source;
  }
}

// Forward behind the product: biases, Hardtanh, Mish and group norm in one launch; the product is read once where a
// warp holds a group, and the rest stays in registers.

// Grid (strips * chunks).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_short_groups(const float* __restrict__ product, Biases biases, const float* __restrict__ weight,
                           const float* __restrict__ bias, Shape shape, Teams teams, Chunks chunks, float eps,
                           float* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd) {
  const Place place = place_of(shape, teams, blockIdx.x);
  float group_weight[kValues];
  float group_bias[kValues];
  float linear_bias[kValues];
  float added_bias[kValues];
  const int64_t begin = place.chunk * chunks.rows;
  const int64_t end = begin + chunks.rows < shape.rows ? begin + chunks.rows : shape.rows;
  load_share<kWidth>(weight + place.column, place, group_weight);
  load_share<kWidth>(bias + place.column, place, group_bias);
  if constexpr (kAddBiases) {
    load_share<kWidth>(biases.linear + place.column, place, linear_bias);
    load_added_bias<kWidth>(biases, begin, place, added_bias);
  }
  for (int64_t first = begin; first < end; first += kRowsInFlight) {
    float values[kRowsInFlight][kValues];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (first + i < end) {
        load_share<kWidth>(product + (first + i) * shape.columns + place.column, place, values[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int64_t row = first + i;
      if (row >= end) break;
      if constexpr (kAddBiases) {
        if (biases.row_stride != 0) load_added_bias<kWidth>(biases, row, place, added_bias);
#pragma unroll
        for (int j = 0; j < kValues; ++j) values[i][j] = biased(values[i][j], linear_bias[j], added_bias[j]);
      }
      float normalised[kValues];
#pragma unroll
      for (int j = 0; j < kValues; ++j) normalised[j] = activation(values[i][j]);
      float row_mean;
      float row_rstd;
      // Hardtanh makes groups of equal values common.
      normalise_share<kWidth>(normalised, group_weight, group_bias, place, eps, row_mean, row_rstd);
      store_share<kWidth>(y + row * shape.columns + place.column, place, normalised);
      if (place.lane == 0 && place.length > 0) {
        mean[row * shape.groups + place.group] = row_mean;
        rstd[row * shape.groups + place.group] = row_rstd;
      }
    }
  }
}

// The moments of the activations of one row's group, in every thread of the block.
__device__ inline Moments block_activation_moments(const float* product, const Biases& biases, int64_t row,
                                                   int64_t column, int64_t length, int64_t columns,
                                                   Moments* scratch) {
  const MergeMoments merge;
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = threadIdx.x; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      values[i] = activation(biased_at(product, biases, row, column + start + i * blockDim.x, columns));
    }
    running = merge(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = merge(running, Moments{1.0f, activation(biased_at(product, biases, row, column + i, columns)), 0.0f});
  }
  return block_reduce(running, Moments{0.0f, 0.0f, 0.0f}, scratch, merge);
}

// Grid (rows * groups): one block a group, which it reads twice.
__global__ void __launch_bounds__(kThreads)
    normalise_long_groups(const float* product, Biases biases, const float* weight, const float* bias, Shape shape,
                          float eps, float* y, float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  const int64_t length = shape.columns / shape.groups;
  for (int64_t item = blockIdx.x; item < shape.rows * shape.groups; item += gridDim.x) {
    const int64_t row = item / shape.groups;
    const int64_t first = item % shape.groups * length;
    const Moments moments =
        block_activation_moments(product, biases, row, first, length, shape.columns, scratch);
    const float group_rstd = reciprocal_deviation(moments.m2, static_cast<float>(length), eps);
    if (threadIdx.x == 0) {
      mean[item] = moments.mean;
      rstd[item] = group_rstd;
    }
    for (int64_t column = first + threadIdx.x; column < first + length; column += blockDim.x) {
      const float value = activation(biased_at(product, biases, row, column, shape.columns));
      y[row * shape.columns + column] = (value - moments.mean) * (group_rstd * weight[column]) + bias[column];
    }
  }
}

// Whether rows, groups and all that lies along the columns can be read four floats at a time.
inline bool biases_read_as_float4(const Biases& biases, int64_t length) {
  if (!kAddBiases) return true;
  return reads_as_vectors(biases.linear, length) &&
         (biases.column_stride == 0 || reads_as_vectors(biases.added, length));
}

LaunchStatus launch_forward(const float* product, const Biases& biases, const float* weight, const float* bias,
                            const Shape& shape, float eps, float* y, float* mean, float* rstd, int device,
                            void* stream_handle) {
  if (shape.rows == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t length = shape.columns / shape.groups;
  if (!fits_a_team(shape)) {
    normalise_long_groups<<<grid_for(shape.rows * shape.groups), threads_for(length, kThreads), 0, stream>>>(
        product, biases, weight, bias, shape, eps, y, mean, rstd);
    return launched("normalise_long_groups");
  }
  const Teams teams = teams_of(shape);
  const Chunks chunks = chunks_of(shape.rows, kRowsPerBlock);
  const unsigned blocks = grid_for(teams.strips * chunks.count);
  if (reads_as_vectors(product, length) && reads_as_vectors(weight, length) && reads_as_vectors(bias, length) &&
      reads_as_vectors(y, length) && biases_read_as_float4(biases, length)) {
    normalise_short_groups<4><<<blocks, teams.threads, 0, stream>>>(product, biases, weight, bias, shape, teams,
                                                                    chunks, eps, y, mean, rstd);
  } else {
    normalise_short_groups<1><<<blocks, teams.threads, 0, stream>>>(product, biases, weight, bias, shape, teams,
                                                                    chunks, eps, y, mean, rstd);
  }
  return launched("normalise_short_groups");
}

// Backward behind the product. With xhat = (a - mean) * rstd and g = dy * weight, over each group
//     da = rstd * (g - mean(g) - xhat * mean(g * xhat)),    dz = da * da/dz,
// and over the rows dweight = sum(dy * xhat), dbias = sum(dy), and for both biases before Hardtanh sum(dz). What
// forward normalised is computed again from the product. Sums over rows: one partial sum a chunk, then all chunks in
// order.

// The partial sums (chunks, columns) of each kind of parameter; null where it is not wanted.
struct PartialSums {
  float* weight;
  float* bias;
  float* shift;  // of what is added to the product
};

__device__ inline void store_partial(float* sums, int64_t offset, float sum) {
  if (sums != nullptr) sums[offset] = sum;
}

template <int kWidth>
__device__ inline void store_partial_share(float* sums, int64_t offset, const Place& place,
                                           const float (&share)[kValues]) {
  if (sums != nullptr) store_share<kWidth>(sums + offset, place, share);
}

// One row's group: dz from dy, and what the row adds to the sums. `values` are z on entry.
template <int kWidth>
__device__ inline void differentiate_share(const float (&dy)[kValues], const float (&values)[kValues],
                                           const float (&weight)[kValues], const Place& place, float mean, float rstd,
                                           float (&dz)[kValues], float (&xhat)[kValues]) {
  const float length = static_cast<float>(place.length);
  float slope[kValues];
  float sum = 0.0f;
  float sum_xhat = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const Activation a = activation_with_slope(values[i]);
    xhat[i] = (a.value - mean) * rstd;
    slope[i] = a.slope;
    dz[i] = dy[i] * weight[i];  // 0 where this lane holds nothing
    sum += dz[i];
    sum_xhat += dz[i] * xhat[i];
  }
  const float mean_g = team_sum(sum, place.lanes) / length;
  const float mean_g_xhat = team_sum(sum_xhat, place.lanes) / length;
#pragma unroll
  for (int i = 0; i < kValues; ++i) dz[i] = rstd * (dz[i] - mean_g - xhat[i] * mean_g_xhat) * slope[i];
}

// Grid (strips * chunks), as in forward.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    differentiate_short_groups(const float* __restrict__ dy, const float* __restrict__ product, Biases biases,
                               const float* __restrict__ weight, const float* __restrict__ mean,
                               const float* __restrict__ rstd, Shape shape, Teams teams, Chunks chunks,
                               float* __restrict__ dz, PartialSums partial) {
  const Place place = place_of(shape, teams, blockIdx.x);
  float group_weight[kValues];
  float linear_bias[kValues];
  float added_bias[kValues];
  float weight_sums[kValues] = {};
  float bias_sums[kValues] = {};
  float shift_sums[kValues] = {};
  const int64_t begin = place.chunk * chunks.rows;
  const int64_t end = begin + chunks.rows < shape.rows ? begin + chunks.rows : shape.rows;
  load_share<kWidth>(weight + place.column, place, group_weight);
  if constexpr (kAddBiases) {
    load_share<kWidth>(biases.linear + place.column, place, linear_bias);
    load_added_bias<kWidth>(biases, begin, place, added_bias);
  }
  for (int64_t first = begin; first < end; first += kRowsInFlight) {
    float gradients[kRowsInFlight][kValues];
    float values[kRowsInFlight][kValues];
    float means[kRowsInFlight];
    float rstds[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int64_t row = first + i;
      if (row < end) {
        load_share<kWidth>(dy + row * shape.columns + place.column, place, gradients[i]);
        load_share<kWidth>(product + row * shape.columns + place.column, place, values[i]);
        means[i] = place.length > 0 ? mean[row * shape.groups + place.group] : 0.0f;
        rstds[i] = place.length > 0 ? rstd[row * shape.groups + place.group] : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int64_t row = first + i;
      if (row >= end) break;
      if constexpr (kAddBiases) {
        if (biases.row_stride != 0) load_added_bias<kWidth>(biases, row, place, added_bias);
#pragma unroll
        for (int j = 0; j < kValues; ++j) values[i][j] = biased(values[i][j], linear_bias[j], added_bias[j]);
      }
      float share[kValues];
      float xhat[kValues];
      differentiate_share<kWidth>(gradients[i], values[i], group_weight, place, means[i], rstds[i], share, xhat);
      if (dz != nullptr) store_share<kWidth>(dz + row * shape.columns + place.column, place, share);
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        weight_sums[j] += gradients[i][j] * xhat[j];
        bias_sums[j] += gradients[i][j];
        shift_sums[j] += share[j];
      }
    }
  }
  const int64_t offset = place.chunk * shape.columns + place.column;
  store_partial_share<kWidth>(partial.weight, offset, place, weight_sums);
  store_partial_share<kWidth>(partial.bias, offset, place, bias_sums);
  store_partial_share<kWidth>(partial.shift, offset, place, shift_sums);
}

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

// Grid (rows * groups): one block a group, which it reads twice; dz only.
__global__ void __launch_bounds__(kThreads)
    differentiate_long_groups(const float* dy, const float* product, Biases biases, const float* weight,
                              const float* mean, const float* rstd, Shape shape, float* dz) {
  __shared__ double scratch[kMaxWarps];
  const int64_t length = shape.columns / shape.groups;
  for (int64_t item = blockIdx.x; item < shape.rows * shape.groups; item += gridDim.x) {
    const int64_t row = item / shape.groups;
    const int64_t first = item % shape.groups * length;
    double sum = 0.0;
    double sum_xhat = 0.0;
    for (int64_t column = first + threadIdx.x; column < first + length; column += blockDim.x) {
      const float xhat = (activation(biased_at(product, biases, row, column, shape.columns)) - mean[item]) * rstd[item];
      const float g = dy[row * shape.columns + column] * weight[column];
      sum += g;
      sum_xhat += g * xhat;
    }
    const double count = static_cast<double>(length);
    const float mean_g = static_cast<float>(block_reduce(sum, 0.0, scratch, AddDoubles()) / count);
    const float mean_g_xhat = static_cast<float>(block_reduce(sum_xhat, 0.0, scratch, AddDoubles()) / count);
    for (int64_t column = first + threadIdx.x; column < first + length; column += blockDim.x) {
      const Activation a = activation_with_slope(biased_at(product, biases, row, column, shape.columns));
      const float xhat = (a.value - mean[item]) * rstd[item];
      const float g = dy[row * shape.columns + column] * weight[column];
      dz[row * shape.columns + column] = rstd[item] * (g - mean_g - xhat * mean_g_xhat) * a.slope;
    }
  }
}

// The partial sums where groups are long: grid (columns / kThreads * chunks), one thread a column.
__global__ void __launch_bounds__(kThreads)
    sum_chunks_of_columns(const float* dy, const float* product, Biases biases, const float* mean, const float* rstd,
                          const float* dz, Shape shape, Chunks chunks, PartialSums partial) {
  const int64_t strips = (shape.columns + blockDim.x - 1) / blockDim.x;
  const int64_t column = blockIdx.x % strips * blockDim.x + threadIdx.x;
  const int64_t chunk = blockIdx.x / strips;
  if (column >= shape.columns) return;
  const int64_t group = column / (shape.columns / shape.groups);
  const int64_t begin = chunk * chunks.rows;
  const int64_t end = begin + chunks.rows < shape.rows ? begin + chunks.rows : shape.rows;
  float weight_sum = 0.0f;
  float bias_sum = 0.0f;
  float shift_sum = 0.0f;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t item = row * shape.groups + group;
    const float gradient = dy[row * shape.columns + column];
    bias_sum += gradient;
    if (partial.weight != nullptr) {
      const float value = activation(biased_at(product, biases, row, column, shape.columns));
      weight_sum += gradient * ((value - mean[item]) * rstd[item]);
    }
    if (partial.shift != nullptr) shift_sum += dz[row * shape.columns + column];
  }
  const int64_t offset = chunk * shape.columns + column;
  store_partial(partial.weight, offset, weight_sum);
  store_partial(partial.bias, offset, bias_sum);
  store_partial(partial.shift, offset, shift_sum);
}

// Grid (columns / 32), block (32 columns, 8 lanes of chunks): adds the chunks up, in double and in a fixed order.
constexpr int kChunkLanes = 8;

__global__ void add_chunks(PartialSums partial, int64_t chunks, int64_t columns, Gradients gradients) {
  __shared__ double lane_sums[kChunkLanes][kWarpSize];
  const float* const sources[3] = {partial.weight, partial.bias, partial.shift};
  float* const targets[3][2] = {
      {gradients.weight, nullptr}, {gradients.bias, nullptr}, {gradients.linear_bias, gradients.added_bias}};
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
#pragma unroll
  for (int kind = 0; kind < 3; ++kind) {
    if (sources[kind] == nullptr) continue;
    double sum = 0.0;
    if (column < columns) {
      for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kChunkLanes) {
        sum += sources[kind][chunk * columns + column];
      }
    }
    __syncthreads();  // the kind before has been read
    lane_sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) continue;
    for (int lane = 1; lane < kChunkLanes; ++lane) sum += lane_sums[lane][threadIdx.x];
    if (targets[kind][0] != nullptr) targets[kind][0][column] = static_cast<float>(sum);
    if (targets[kind][1] != nullptr) targets[kind][1][column] = static_cast<float>(sum);
  }
}

// Never nothing: torch gives empty tensors a null address, which would read as "not wanted" below, and the gradients of
// no rows are zeros that must be written.
int64_t backward_scratch(const Shape& shape) {
  const int64_t chunks = chunks_of(shape.rows, kRowsPerBlock).count;
  return 3 * (chunks < 1 ? 1 : chunks) * shape.columns;
}

inline PartialSums partial_sums(const Gradients& gradients, float* scratch, int64_t floats) {
  const bool wants_shift = gradients.linear_bias != nullptr || gradients.added_bias != nullptr;
  return {gradients.weight != nullptr ? scratch : nullptr, gradients.bias != nullptr ? scratch + floats : nullptr,
          wants_shift ? scratch + 2 * floats : nullptr};
}

LaunchStatus launch_short_groups(const float* dy, const float* product, const Biases& biases, const float* weight,
                                 const float* mean, const float* rstd, const Shape& shape, const Chunks& chunks,
                                 float* dz, const PartialSums& partial, cudaStream_t stream) {
  const Teams teams = teams_of(shape);
  const int64_t length = shape.columns / shape.groups;
  const unsigned blocks = grid_for(teams.strips * chunks.count);
  // Partial sums begin at multiples of the columns in memory that torch allocated, as dz does.
  if (reads_as_vectors(dy, length) && reads_as_vectors(product, length) && reads_as_vectors(weight, length) &&
      reads_as_vectors(dz, length) && reads_as_vectors(partial.weight, length) &&
      biases_read_as_float4(biases, length)) {
    differentiate_short_groups<4><<<blocks, teams.threads, 0, stream>>>(dy, product, biases, weight, mean, rstd, shape,
                                                                        teams, chunks, dz, partial);
  } else {
    differentiate_short_groups<1><<<blocks, teams.threads, 0, stream>>>(dy, product, biases, weight, mean, rstd, shape,
                                                                        teams, chunks, dz, partial);
  }
  return launched("differentiate_short_groups");
}

LaunchStatus launch_long_groups(const float* dy, const float* product, const Biases& biases, const float* weight,
                                const float* mean, const float* rstd, const Shape& shape, const Chunks& chunks,
                                float* dz, const PartialSums& partial, cudaStream_t stream) {
  if (dz != nullptr) {
    const unsigned threads = threads_for(shape.columns / shape.groups, kThreads);
    differentiate_long_groups<<<grid_for(shape.rows * shape.groups), threads, 0, stream>>>(dy, product, biases, weight,
                                                                                          mean, rstd, shape, dz);
    const LaunchStatus status = launched("differentiate_long_groups");
    if (status.kernel != nullptr) return status;
  }
  if (partial.weight == nullptr && partial.bias == nullptr && partial.shift == nullptr) return {nullptr, nullptr};
  const unsigned blocks = grid_for(ceil_div(shape.columns, kThreads) * chunks.count);
  sum_chunks_of_columns<<<blocks, kThreads, 0, stream>>>(dy, product, biases, mean, rstd, dz, shape, chunks, partial);
  return launched("sum_chunks_of_columns");
}

LaunchStatus launch_backward(const float* dy, const float* product, const Biases& biases, const float* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const Chunks chunks = chunks_of(shape.rows, kRowsPerBlock);
  const PartialSums partial = partial_sums(gradients, scratch, chunks.count * shape.columns);
  if (shape.rows > 0) {
    const auto launch = fits_a_team(shape) ? launch_short_groups : launch_long_groups;
    const LaunchStatus status =
        launch(dy, product, biases, weight, mean, rstd, shape, chunks, gradients.product, partial, stream);
    if (status.kernel != nullptr) return status;
  }
  if (partial.weight == nullptr && partial.bias == nullptr && partial.shift == nullptr) return {nullptr, nullptr};
  add_chunks<<<grid_for(ceil_div(shape.columns, kWarpSize)), dim3(kWarpSize, kChunkLanes), 0, stream>>>(
      partial, chunks.count, shape.columns, gradients);
  return launched("add_chunks");
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

void check_matrix(const Tensor& tensor, const Tensor& x, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 2, name, " must have 2 dimensions, got ", tensor.dim());
}

void check_vector(const Tensor& tensor, const Tensor& x, int64_t length, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == length, name, " must have ", length, " elements");
}

Shape shape_of(const Tensor& product, int64_t groups) {
  check_matrix(product, product, "the product");
  const int64_t columns = product.size(1);
  STD_TORCH_CHECK(groups > 0 && columns > 0 && columns % groups == 0, columns, " features cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(columns <= 0x7fffffff, columns, " features are more than the kernels count");
  return {product.size(0), columns, groups};
}

// The biases of a (rows, columns) product; `added` has up to two dimensions and broadcasts to it.
Biases biases_of(const Tensor& x, int64_t rows, int64_t columns, const Tensor& linear, const Tensor& added) {
  check_vector(linear, x, columns, "the bias of the linear layer");
  check_float_input(added, x, "bias");
  const int64_t dimensions = added.dim();
  const int64_t width = dimensions >= 1 ? added.size(dimensions - 1) : 1;
  const int64_t height = dimensions >= 2 ? added.size(0) : 1;
  STD_TORCH_CHECK(dimensions <= 2 && (width == 1 || width == columns) && (height == 1 || height == rows),
                  "bias (..., ", height, ", ", width, ") does not broadcast to (", rows, ", ", columns, ")");
  return {input_floats(linear), input_floats(added), height == 1 ? 0 : width, width == 1 ? 0 : 1};
}

// y like the product, and statistics (2, batch, groups): mean and 1 / sqrt(variance + eps) of what is normalised.
std::tuple<Tensor, Tensor> forward(const Tensor& product, const Tensor& linear_bias, const Tensor& added_bias,
                                   const Tensor& weight, const Tensor& bias, int64_t groups, double eps) {
  const Shape shape = shape_of(product, groups);
  const Biases biases = biases_of(product, shape.rows, shape.columns, linear_bias, added_bias);
  check_vector(weight, product, shape.columns, "the weight of the group norm");
  check_vector(bias, product, shape.columns, "the bias of the group norm");
  Tensor y = torch::stable::empty_like(product);
  Tensor statistics = torch::stable::new_empty(product, {2, shape.rows, shape.groups});
  float* mean = output_floats(statistics);
  check_launch(launch_forward(input_floats(product), biases, input_floats(weight), input_floats(bias), shape,
                              static_cast<float>(eps), output_floats(y), mean, mean + shape.rows * shape.groups,
                              product.get_device_index(), current_stream(product)));
  return {y, statistics};
}

using Wanted = std::optional<Tensor>;

float* floats_or_null(Wanted& tensor) { return tensor ? output_floats(*tensor) : nullptr; }

// The wanted gradients: of the product, of the group norm's weight and bias, of the linear layer's bias, and of the
// added bias, that last one only where it is one row.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted> backward(
    const Tensor& dy, const Tensor& product, const Tensor& linear_bias, const Tensor& added_bias,
    const Tensor& weight, const Tensor& statistics, int64_t groups, bool wants_product, bool wants_weight,
    bool wants_bias, bool wants_linear_bias, bool wants_added_bias) {
  const Shape shape = shape_of(product, groups);
  const Biases biases = biases_of(product, shape.rows, shape.columns, linear_bias, added_bias);
  check_matrix(dy, product, "the gradient of y");
  check_vector(weight, product, shape.columns, "the weight of the group norm");
  check_float_input(statistics, product, "statistics");
  STD_TORCH_CHECK(dy.size(0) == shape.rows && dy.size(1) == shape.columns,
                  "the gradient of y must have the shape of y");
  STD_TORCH_CHECK(statistics.numel() == 2 * shape.rows * shape.groups, "statistics must be (2, batch, groups)");
  STD_TORCH_CHECK(wants_product || !(wants_linear_bias || wants_added_bias),
                  "the gradient of a bias wants that of the product");
  STD_TORCH_CHECK(!wants_added_bias || (biases.row_stride == 0 && added_bias.numel() == shape.columns),
                  "only a bias of one row is summed here");
  Wanted dproduct, dweight, dbias, dlinear_bias, dadded_bias;
  if (wants_product) dproduct = torch::stable::empty_like(product);
  if (wants_weight) dweight = torch::stable::empty_like(weight);
  if (wants_bias) dbias = torch::stable::empty_like(weight);
  if (wants_linear_bias) dlinear_bias = torch::stable::empty_like(linear_bias);
  if (wants_added_bias) dadded_bias = torch::stable::empty_like(added_bias);
  const Gradients gradients = {floats_or_null(dproduct), floats_or_null(dweight), floats_or_null(dbias),
                               floats_or_null(dlinear_bias), floats_or_null(dadded_bias)};
  Tensor scratch = torch::stable::new_empty(product, {backward_scratch(shape)});
  const float* mean = input_floats(statistics);
  check_launch(launch_backward(input_floats(dy), input_floats(product), biases, input_floats(weight), mean,
                               mean + shape.rows * shape.groups, shape, gradients, output_floats(scratch),
                               product.get_device_index(), current_stream(product)));
  return {dproduct, dweight, dbias, dlinear_bias, dadded_bias};
}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def(
      "forward(Tensor product, Tensor linear_bias, Tensor added_bias, Tensor weight, Tensor bias, int groups, "
      "float eps) -> (Tensor, Tensor)");
  m.def(
      "backward(Tensor dy, Tensor product, Tensor linear_bias, Tensor added_bias, Tensor weight, Tensor statistics, "
      "int groups, bool wants_product, bool wants_weight, bool wants_bias, bool wants_linear_bias, "
      "bool wants_added_bias) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
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


OPERATORS = build_operators("gemm_bias_add_hardtanh_mish_group_norm", LAUNCHERS, CUDA_SOURCE, BINDING_SOURCE)


class FusedFunction(torch.autograd.Function):
    """The kernels as one differentiable operation."""

    @staticmethod
    def forward(ctx, product, x, weight, linear_bias, added_bias, norm_weight, norm_bias, groups, eps):
        """Return y (batch, out_features) from the product; keeps it and the statistics (2, batch, groups)."""
        linear_bias, added_bias = linear_bias.contiguous(), added_bias.contiguous()
        norm_weight = norm_weight.contiguous()
        y, statistics = OPERATORS.forward(
            product, linear_bias, added_bias, norm_weight, norm_bias.contiguous(), groups, eps
        )
        ctx.save_for_backward(x, weight, linear_bias, added_bias, norm_weight, product, statistics)
        ctx.groups = groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return those gradients that autograd asks for."""
        x, weight, linear_bias, added_bias, norm_weight, product, statistics = ctx.saved_tensors
        wants_x, wants_weight, wants_linear_bias, wants_added_bias, wants_norm_weight, wants_norm_bias = (
            ctx.needs_input_grad[1:7]
        )
        one_row = added_bias.dim() > 0 and added_bias.shape[-1] == added_bias.numel() == product.shape[1]
        dz, dnorm_weight, dnorm_bias, dlinear_bias, dadded_bias = OPERATORS.backward(
            dy.contiguous(),
            product,
            linear_bias,
            added_bias,
            norm_weight,
            statistics,
            ctx.groups,
            wants_x or wants_weight or wants_linear_bias or wants_added_bias,
            wants_norm_weight,
            wants_norm_bias,
            wants_linear_bias,
            wants_added_bias and one_row,
        )
        if wants_added_bias and not one_row:
            dadded_bias = dz.sum_to_size(added_bias.shape)
        dx = torch.mm(dz, weight) if wants_x else None
        dweight = torch.mm(dz.t(), x) if wants_weight else None
        return None, dx, dweight, dlinear_bias, dadded_bias, dnorm_weight, dnorm_bias, None, None


class ModelNew(nn.Module):
    """The fused layers with the parameters of the modules they replace; input (batch, in_features), float32."""

    def __init__(self, in_features: int, out_features: int, bias_shape: tuple[int, ...], num_groups: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)
        shape = tuple(self.bias.shape)
        if len(shape) > 2 or shape[-1:] not in ((), (1,), (out_features,)):
            raise ValueError(
                f"bias_shape {shape} does not broadcast to (batch, {out_features}): give (), (1,), ({out_features},), "
                f"or two dimensions, 1 or the batch, then 1 or {out_features}"
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run all layers; the result is (batch, out_features), contiguous."""
        if x.dim() != 2:
            raise ValueError(f"x must be (batch, in_features), got {x.dim()} dimension(s)")
        if x.shape[0] == 1 and self.bias.dim() == 2:
            x = x.expand(self.bias.shape[0], -1)  # one sample meets a bias of many rows
        x, weight = x.contiguous(), self.gemm.weight.contiguous()
        # Begun before autograd's bookkeeping: the GPU waits for the host until the first kernel.
        product = torch.mm(x.detach(), weight.detach().t())
        return FusedFunction.apply(
            product,
            x,
            weight,
            self.gemm.bias,
            self.bias,
            self.groupnorm.weight,
            self.groupnorm.bias,
            self.groupnorm.num_groups,
            self.groupnorm.eps,
        )

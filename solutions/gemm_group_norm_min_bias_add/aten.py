# Rendered from templates/gemm_group_norm_min_bias_add: change that, not this file, and render again.
# template: gemm_group_norm_min_bias_add
# parameters: {"backward":"sparse","block_k":16,"block_m":128,"block_n":128,"cluster_m":1,"cluster_n":2,"gemm":"aten","minimum":"fused","partial_depth":1024,"promoted_steps":4,"rows_in_flight":2,"rows_per_block":8,"split_from":30,"stages":7,"statistics":"pass","thread_m":8,"thread_n":8,"threads":512,"values_per_thread":8}
# digest: sha256:a42486335ce8fc97b1d48affaad3c7d3cdcc744366cbf23ca4a9be8f3c526d28
"""A linear layer, group normalisation, the least feature of each sample and a bias that broadcasts, both ways.

Computes, for x of shape (batch, in_features), float32, and each group of neighbouring features of each sample:

    z = x @ gemm.weight.T + gemm.bias                             (batch, out_features)
    a = (z - mean) / sqrt(variance + eps) * group_norm.weight + group_norm.bias
    y = min(a, dim=1, keepdim=True) + bias                        whatever (batch, 1) and the bias broadcast to

and the gradients of x, gemm.weight (out_features, in_features), gemm.bias, group_norm.weight and group_norm.bias
(out_features,), and bias, all float32. With a bias of shape (1, out_features, 1, 1), y is (1, out_features, batch, 1).

Replaces: ``torch.nn.GroupNorm``, ``torch.min``, the addition and their backwards (``native_group_norm``, ``min``,
``add``, ``value_selecting_reduction_backward``, ``sum``), the addition in ``torch.nn.Linear`` and the two products of
its backward. The product of the forward stays torch's (``mm``): it follows ``torch.backends.cuda.matmul.allow_tf32``,
off by default.

Why that should be faster: behind the product eager PyTorch reads (batch, out_features) twice and writes it once to
normalise it, reads it for the minimum, and keeps both for the backward. Here nothing of that shape but the product is
written. A row is normalised in registers and searched there; what is kept for the backward is a column a sample.
A block finds the minima of 8 samples, and as soon as it has them writes y, every element of the bias plus 8
neighbouring minima.
The gradient of a minimum reaches one feature of a sample, and through group norm one group. PyTorch multiplies a
(batch, out_features) gradient that is nearly all zeros, twice. Here dx sums the rows of gemm.weight that belong to
one group, and dweight, for each group, the samples whose minimum fell into it; all other rows are zeros, and writing
them is most of what remains. Where groups are few, the two do the work of full products, without their speed.
z of that group, out_features / num_groups of a sample, is computed again in the backward, in double precision: where
cancellation leaves gradients small, the rounding of z would show in them.

Forward:   add_bias_to_lowest    grid (batch / 8), block (32 .. 512)
Backward:  sum_both_ways         grid (dy along memory / 1024 * lines of it / 16), block (32 .. 256)
           add_parts             grid (batch / 32 + elements of the bias / 32), block (32, 8)
           list_rows_of_groups   grid (1), block (1024)
           compute_groups_again  grid (batch / 4 * features of a group / 4), block (32 .. 256)
           differentiate_groups  grid (batch / 8), block (256)
           sum_lists             grid (out_features / 8), block (256)
           multiply_by_groups    grid (batch / 8 * in_features / 1024), block (32 .. 256)
           clear_unlisted        grid (out_features / 8 * in_features / 1024), block (32 .. 256)
           gather_lists          grid (no more than 1024), block (256)

Of equal minima the lowest index has the gradient, as in PyTorch; a NaN is the least of all. In the backward of a sample
with NaN, what lies outside the group of its minimum may keep a gradient of 0 that PyTorch makes NaN.

Every reduction has a fixed order (no atomics on numbers that round): the same input gives the same bits.
"""

import hashlib
import math

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

// What is normalised, and how: z = product (+ linear_bias), and weight and bias (columns) of the group norm.
struct Normalisation {
  const float* product;      // (rows, columns)
  const float* linear_bias;  // (columns)
  const float* weight;
  const float* bias;
  const float* moments;      // what the product's epilogue left behind; else null
  Shape shape;
  float eps;
};

// What the minima (rows) and the bias broadcast to: y (outer, rows, inner), contiguous, is minima (rows) plus the bias,
// (outer, rows, inner) or (outer, 1, inner). An entry is a pair of outer and inner.
struct Broadcast {
  const float* bias;
  int64_t outer;
  int64_t rows;
  int64_t inner;
  int64_t bias_row;  // floats from one row to the next of the bias: inner or 0
};

// The gradient of y: its address and its strides, in floats, along (outer, rows, inner).
struct Cotangent {
  const float* data;
  int64_t outer;
  int64_t rows;
  int64_t inner;
  int64_t outer_stride;
  int64_t row_stride;
  int64_t inner_stride;
};

// What the gradient of z is computed from: z = x weight^T + linear_bias, and the column of each row's minimum.
struct Winners {
  const int* columns;        // (rows)
  const float* x;            // (rows, features)
  const float* weight;       // (columns, features)
  const float* linear_bias;  // (columns)
  const float* norm_weight;  // (columns)
  int64_t features;
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  float* linear_bias;  // (columns)
  float* norm_weight;  // (columns)
  float* norm_bias;    // (columns)
};

// Memory for the backward to work in.
struct Workspace {
  float* minima;        // (rows): the gradient of each minimum
  double* z;            // (rows, columns / groups): z of the group of each minimum
  float* dz;            // (rows, columns / groups): its gradient
  float* norm_weight;   // (rows): what each row adds to the gradient of its winner's weight
  int* order;           // (rows): the rows, those of one group after those of another, each in their order
  int* begins;          // (groups + 1): where in `order` a group's rows begin
  int* listed;          // (groups + 1): the groups that have rows; the last element is how many these are
  int* cursors;         // (groups)
};

// Writes y and, where it is not null, `winners` (rows): the column of each row's minimum. `minima` (rows) is memory to
// work in.
LaunchStatus launch_forward(const Normalisation& normalisation, const Broadcast& broadcast, float* y, int* winners,
                            float* minima, int device, void* stream);

// Floats of memory that launch_cotangent_sums works in.
int64_t cotangent_scratch(const Cotangent& cotangent);

// minima (rows) = sum over entries, bias (outer * inner) = sum over rows; null where not wanted.
LaunchStatus launch_cotangent_sums(const Cotangent& cotangent, float* minima, float* bias, float* scratch, int device,
                                   void* stream);

// From workspace.minima on: the rest of the workspace, and the gradients of what belongs to columns.
LaunchStatus launch_group_gradients(const Winners& winners, const Shape& shape, double eps, const Workspace& workspace,
                                    const Gradients& gradients, int device, void* stream);

// dx (rows, features).
LaunchStatus launch_input_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape, float* dx,
                                   int device, void* stream);

// dweight (columns, features).
LaunchStatus launch_weight_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape,
                                    float* dweight, int device, void* stream);

}  // namespace OP_NAMESPACE
"""

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

namespace OP_NAMESPACE {

constexpr int kThreads = 512;          // of a block behind the product
constexpr int kValues = 8;             // floats of one group that a thread holds
constexpr int kBatch = kValues;        // the same, by the name that shared pieces know
constexpr int kRowsPerBlock = 8;       // whose minima a block finds
constexpr int kRowsInFlight = 2;       // of these, loaded together
constexpr bool kAddLinearBias = true;   // the product is bare

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

// The least of a row as torch.min finds it: NaN before all numbers, then the lower value, then the lower column.

struct Lowest {
  unsigned order;  // of the value: as unsigned numbers these lie as the values do, NaN first
  int column;
};

constexpr unsigned kOrderOfNaN = 0;

__device__ inline Lowest no_value() { return {0xffffffffu, 0x7fffffff}; }

// Adding 0 makes -0 the 0 that it equals.
__device__ inline unsigned order_of(float value) {
  const unsigned bits = __float_as_uint(value + 0.0f);
  return isnan(value) ? kOrderOfNaN : bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ inline float value_of(unsigned order) {
  if (order == kOrderOfNaN) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(order ^ (order >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// Takes the value in one column into account. A thread meets columns in ascending order: the first of equals stays.
__device__ inline void consider(float value, int column, Lowest& lowest) {
  const unsigned order = order_of(value);
  if (order < lowest.order) lowest = {order, column};
}

struct LowerOf {
  __device__ Lowest operator()(const Lowest& left, const Lowest& right) const {
    const bool takes_right = right.order < left.order || (right.order == left.order && right.column < left.column);
    return takes_right ? right : left;
  }
};

__device__ inline Lowest from_lane_above(const Lowest& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.order, offset), __shfl_down_sync(kAllLanes, value.column, offset)};
}

// The lowest of each of a block's rows over all of its threads; `found` is shared, and complete after the call.
__device__ inline void find_lowest(const Lowest (&lowest)[kRowsPerBlock], Lowest (&found)[kRowsPerBlock]) {
  __shared__ Lowest of_warps[kRowsPerBlock][kMaxWarps];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int warps = blockDim.x / kWarpSize;
#pragma unroll
  for (int i = 0; i < kRowsPerBlock; ++i) {
    const Lowest of_warp = warp_reduce(lowest[i], LowerOf());
    if (lane == 0) of_warps[i][warp] = of_warp;
  }
  __syncthreads();
  for (int i = warp; i < kRowsPerBlock; i += warps) {
    const Lowest of_row = warp_reduce(lane < warps ? of_warps[i][lane] : no_value(), LowerOf());
    if (lane == 0) found[i] = of_row;
  }
  __syncthreads();
}

// A block's rows, normalised in registers and searched for their minima: nothing is written.

__device__ inline float z_of(float product, float linear_bias) {
  return kAddLinearBias ? product + linear_bias : product;
}

// Where a warp holds a group: a team finds its statistics in registers, so that the product is read once.
template <int kWidth>
struct ShortGroups {
  Normalisation source;
  Teams teams;

  __device__ void operator()(int64_t first_row, Lowest (&lowest)[kRowsPerBlock]) const {
    for (int64_t strip = 0; strip < teams.strips; ++strip) {
      const Place place = place_of(source.shape, teams, strip);
      float weight[kValues];
      float bias[kValues];
      float linear_bias[kValues] = {};
      load_share<kWidth>(source.weight + place.column, place, weight);
      load_share<kWidth>(source.bias + place.column, place, bias);
      if constexpr (kAddLinearBias) load_share<kWidth>(source.linear_bias + place.column, place, linear_bias);
#pragma unroll
      for (int first = 0; first < kRowsPerBlock; first += kRowsInFlight) {
        float values[kRowsInFlight][kValues];
#pragma unroll
        for (int i = 0; i < kRowsInFlight; ++i) {
          const int64_t row = first_row + first + i;
          if (row >= source.shape.rows) break;
          load_share<kWidth>(source.product + row * source.shape.columns + place.column, place, values[i]);
        }
#pragma unroll
        for (int i = 0; i < kRowsInFlight; ++i) {
          if (first_row + first + i >= source.shape.rows) break;
#pragma unroll
          for (int j = 0; j < kValues; ++j) values[i][j] = z_of(values[i][j], linear_bias[j]);
          float mean;
          float rstd;
          normalise_share<kWidth>(values[i], weight, bias, place, source.eps, mean, rstd);
#pragma unroll
          for (int j = 0; j < kValues; ++j) {
            const int column = place.column + position_of<kWidth>(place, j);
            if (holds<kWidth>(place, j)) consider(values[i][j], column, lowest[first + i]);
          }
        }
      }
    }
  }
};

struct GroupStatistics {
  float mean;
  float rstd;
};

// Groups of a block's rows whose statistics are in shared memory at a time: 32 KB.
constexpr int kGroupsAtOnce = 4096 / kRowsPerBlock;

// The moments of a row's z from `first` on, in lane 0 of the warp.
__device__ inline Moments warp_moments(const Normalisation& source, int64_t row, int64_t first, int64_t length) {
  const float* product = source.product + row * source.shape.columns + first;
  const float* linear_bias = source.linear_bias + first;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t tiled = length / (kWarpSize * kBatch) * (kWarpSize * kBatch);
  Moments running = {0.0f, 0.0f, 0.0f};
  for (int64_t start = lane; start < tiled; start += kWarpSize * kBatch) {
    float values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t position = start + i * kWarpSize;
      values[i] = z_of(product[position], kAddLinearBias ? linear_bias[position] : 0.0f);
    }
    running = MergeMoments()(running, moments_of(values));
  }
  for (int64_t i = tiled + lane; i < length; i += kWarpSize) {
    const float value = z_of(product[i], kAddLinearBias ? linear_bias[i] : 0.0f);
    running = MergeMoments()(running, Moments{1.0f, value, 0.0f});
  }
  return warp_reduce(running, MergeMoments());
}

// From the product, one warp a group.
__device__ inline void block_statistics(const Normalisation& source, int64_t first_row, int64_t first_group, int groups,
                                        GroupStatistics (&statistics)[kRowsPerBlock][kGroupsAtOnce]) {
  const int64_t length = source.shape.columns / source.shape.groups;
  const int warps = blockDim.x / kWarpSize;
  for (int item = threadIdx.x / kWarpSize; item < kRowsPerBlock * groups; item += warps) {
    const int64_t row = first_row + item / groups;
    if (row >= source.shape.rows) break;
    const Moments moments = warp_moments(source, row, (first_group + item % groups) * length, length);
    if (threadIdx.x % kWarpSize != 0) continue;
    statistics[item / groups][item % groups] = {
        moments.mean, reciprocal_deviation(moments.m2, static_cast<float>(length), source.eps)};
  }
}

// Groups of any length, their statistics in shared memory before their columns are searched.
template <int kWidth>
struct GroupsOfAnyLength {
  // Rows loaded together: as many floats as a thread of a team holds.
  static constexpr int kWanted = kRowsInFlight * kValues / 4;
  static constexpr int kInFlight = kRowsPerBlock < kWanted ? kRowsPerBlock : kWanted;

  Normalisation source;

  __device__ void operator()(int64_t first_row, Lowest (&lowest)[kRowsPerBlock]) const {
    __shared__ GroupStatistics statistics[kRowsPerBlock][kGroupsAtOnce];
    const int64_t length = source.shape.columns / source.shape.groups;
    for (int64_t first_group = 0; first_group < source.shape.groups; first_group += kGroupsAtOnce) {
      const int64_t left = source.shape.groups - first_group;
      const int groups = left < kGroupsAtOnce ? static_cast<int>(left) : kGroupsAtOnce;
      __syncthreads();  // those of the groups before have been used
      block_statistics(source, first_row, first_group, groups, statistics);
      __syncthreads();
      const int64_t end = (first_group + groups) * length;
      for (int64_t column = first_group * length + threadIdx.x * kWidth; column < end; column += blockDim.x * kWidth) {
        const int group = static_cast<int>(column / length - first_group);
        search_columns(statistics, first_row, static_cast<int>(column), group, lowest);
      }
    }
  }

 private:
  // kWidth columns of one group, in all rows.
  __device__ void search_columns(const GroupStatistics (&statistics)[kRowsPerBlock][kGroupsAtOnce], int64_t first_row,
                                 int column, int group, Lowest (&lowest)[kRowsPerBlock]) const {
    float weight[kWidth];
    float bias[kWidth];
    float linear_bias[kWidth] = {};
    load_vector<kWidth>(source.weight + column, weight);
    load_vector<kWidth>(source.bias + column, bias);
    if constexpr (kAddLinearBias) load_vector<kWidth>(source.linear_bias + column, linear_bias);
#pragma unroll
    for (int first = 0; first < kRowsPerBlock; first += kInFlight) {
      float values[kInFlight][kWidth];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int64_t row = first_row + first + i;
        if (row >= source.shape.rows) break;
        load_vector<kWidth>(source.product + row * source.shape.columns + column, values[i]);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first_row + first + i >= source.shape.rows) break;
        const GroupStatistics of_group = statistics[first + i][group];
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float deviation = z_of(values[i][j], linear_bias[j]) - of_group.mean;
          consider(deviation * (of_group.rstd * weight[j]) + bias[j], column + j, lowest[first + i]);
        }
      }
    }
  }
};

// Keeps what backward starts from: the column of each row's minimum.
__device__ inline void keep_winners(const Lowest (&found)[kRowsPerBlock], int64_t first_row, int64_t rows,
                                    int* winners) {
  const int64_t row = first_row + threadIdx.x;
  if (winners != nullptr && threadIdx.x < kRowsPerBlock && row < rows) winners[row] = found[threadIdx.x].column;
}

// Runs a launch with the way of searching that the groups and the alignment of the source allow.
template <typename Launch>
void with_search(const Normalisation& source, const Launch& launch) {
  const int64_t length = source.shape.columns / source.shape.groups;
  const bool by_four = reads_as_vectors(source.product, length) && reads_as_vectors(source.weight, length) &&
                       reads_as_vectors(source.bias, length) &&
                       (!kAddLinearBias || reads_as_vectors(source.linear_bias, length));
  if (fits_a_team(source.shape)) {
    const Teams teams = teams_of(source.shape);
    if (by_four) return launch(ShortGroups<4>{source, teams}, teams.threads);
    return launch(ShortGroups<1>{source, teams}, teams.threads);
  }
  const int threads = static_cast<int>(threads_for(source.shape.columns, kThreads));
  if (by_four) return launch(GroupsOfAnyLength<4>{source}, threads);
  return launch(GroupsOfAnyLength<1>{source}, threads);
}

// Where the sums of minima and bias lie. Rows run along memory where the bias's last dimension is 1, as in the shape
// (1, columns, rows, 1); entries do otherwise.

__device__ inline int64_t bias_offset(const Broadcast& broadcast, int64_t outer, int64_t row, int64_t inner) {
  const int64_t rows = broadcast.bias_row != 0 ? broadcast.rows : 1;
  return outer * rows * broadcast.inner + row * broadcast.bias_row + inner;
}

// Splits an entry into outer and inner, mostly without a division.
struct Entry {
  int64_t outer;
  int64_t inner;
};

__device__ inline Entry entry_of(int64_t entry, int64_t outer, int64_t inner) {
  if (outer == 1) return {0, entry};
  if (inner == 1) return {entry, 0};
  return {entry / inner, entry % inner};
}

// values[0 .. kWidth) = the bias of one entry in rows from `row` on; inner is 1.
template <int kWidth>
__device__ inline void load_row_biases(const Broadcast& broadcast, int64_t entry, int64_t row, float* values) {
  if (broadcast.bias_row != 0) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = broadcast.bias[bias_offset(broadcast, entry, row + i, 0)];
    return;
  }
  const float value = broadcast.bias[entry];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = value;
}

// Whether y can be written four floats at a time, rows in runs of `rows_together`.
inline bool adds_by_four(const Broadcast& broadcast, const float* y, int rows_together) {
  if (broadcast.inner == 1) return rows_together % 4 == 0 && reads_as_vectors(y, broadcast.rows);
  return reads_as_vectors(y, broadcast.inner) && reads_as_vectors(broadcast.bias, broadcast.inner);
}

// Forward behind the product in one launch: a block finds the minima of its rows and writes all that they are added to.

// y of a block's rows where rows run along memory: every entry takes kRowsPerBlock neighbouring floats.
template <int kWidth>
__device__ inline void write_along_rows(const Broadcast& broadcast, int64_t first_row, const float* minima, float* y) {
  constexpr int kVectors = kRowsPerBlock / kWidth;  // of one entry
  const int vector = threadIdx.x % kVectors * kWidth;
  const int64_t row = first_row + vector;
  if (row >= broadcast.rows) return;
  float least[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) least[i] = minima[vector + i];
#pragma unroll 4
  for (int64_t entry = threadIdx.x / kVectors; entry < broadcast.outer; entry += blockDim.x / kVectors) {
    float values[kWidth];
    load_row_biases<kWidth>(broadcast, entry, row, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] += least[i];
    store_vector<kWidth>(y + entry * broadcast.rows + row, values);
  }
}

// The same where entries run along memory.
template <int kWidth>
__device__ inline void write_along_entries(const Broadcast& broadcast, int64_t first_row, const float* minima,
                                           float* y) {
  const int64_t entries = broadcast.outer * broadcast.inner;
  for (int i = 0; i < kRowsPerBlock && first_row + i < broadcast.rows; ++i) {
    const int64_t row = first_row + i;
    for (int64_t first = threadIdx.x * kWidth; first < entries; first += blockDim.x * kWidth) {
      const Entry entry = entry_of(first, broadcast.outer, broadcast.inner);
      float values[kWidth];
      load_vector<kWidth>(broadcast.bias + bias_offset(broadcast, entry.outer, row, entry.inner), values);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[j] += minima[i];
      store_vector<kWidth>(y + (entry.outer * broadcast.rows + row) * broadcast.inner + entry.inner, values);
    }
  }
}

// Grid (rows / kRowsPerBlock). `by_four`: y, and what is added along it, can be taken four floats at a time.
template <typename Search>
__global__ void __launch_bounds__(kThreads, 1)
    add_bias_to_lowest(Search search, Broadcast broadcast, bool by_four, float* __restrict__ y,
                       int* __restrict__ winners) {
  __shared__ Lowest found[kRowsPerBlock];
  __shared__ float minima[kRowsPerBlock];
  constexpr int kRowWidth = kRowsPerBlock % 4 == 0 ? 4 : 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowsPerBlock;
  for (int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock; first_row < broadcast.rows;
       first_row += step) {
    Lowest lowest[kRowsPerBlock];
#pragma unroll
    for (int i = 0; i < kRowsPerBlock; ++i) lowest[i] = no_value();
    search(first_row, lowest);
    find_lowest(lowest, found);
    if (threadIdx.x < kRowsPerBlock) minima[threadIdx.x] = value_of(found[threadIdx.x].order);
    __syncthreads();
    keep_winners(found, first_row, broadcast.rows, winners);
    if (broadcast.inner == 1) {
      if (by_four) write_along_rows<kRowWidth>(broadcast, first_row, minima, y);
      else write_along_rows<1>(broadcast, first_row, minima, y);
    } else {
      if (by_four) write_along_entries<4>(broadcast, first_row, minima, y);
      else write_along_entries<1>(broadcast, first_row, minima, y);
    }
  }
}

LaunchStatus launch_forward(const Normalisation& normalisation, const Broadcast& broadcast, float* y, int* winners,
                            float* /*minima*/, int device, void* stream_handle) {
  if (normalisation.shape.rows == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned blocks = grid_for(ceil_div(normalisation.shape.rows, kRowsPerBlock));
  const bool by_four = adds_by_four(broadcast, y, kRowsPerBlock);
  with_search(normalisation, [&](const auto& search, int threads) {
    add_bias_to_lowest<<<blocks, threads, 0, stream>>>(search, broadcast, by_four, y, winners);
  });
  return launched("add_bias_to_lowest");
}

// The gradient of y, summed over entries for the minima and over rows for the bias, in one reading. It is taken as a
// matrix whose positions run along memory, down which threads walk line by line: rows or entries are the positions,
// whichever lie closer together. Each block sums a chunk of lines; then all chunks are added up, in order.

constexpr int kPositions = 4;  // that a thread owns
constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / kWarpSize;
constexpr int kLinesTogether = 16;  // whose sums cross a block at a time
constexpr int kLinesInFlight = 4;   // of these, loaded together

// Where one entry, or one row, begins.
__device__ inline int64_t entry_offset(const Cotangent& dy, int64_t entry) {
  const Entry place = entry_of(entry, dy.outer, dy.inner);
  return place.outer * dy.outer_stride + place.inner * dy.inner_stride;
}

template <bool kRowsRun>
__device__ inline int64_t position_offset(const Cotangent& dy, int64_t position) {
  return kRowsRun ? position * dy.row_stride : entry_offset(dy, position);
}

template <bool kRowsRun>
__device__ inline int64_t line_offset(const Cotangent& dy, int64_t line) {
  return kRowsRun ? entry_offset(dy, line) : line * dy.row_stride;
}

// Positions that a block owns.
__host__ __device__ inline int64_t strip_of(int threads) { return static_cast<int64_t>(threads) * kPositions; }

// Grid (strips * chunks). Writes, where they are not null, position_sums (chunks, positions) and line_sums
// (strips, lines).
template <bool kRowsRun>
__global__ void __launch_bounds__(kSumThreads)
    sum_both_ways(Cotangent dy, Chunks chunks, float* __restrict__ position_sums, float* __restrict__ line_sums) {
  __shared__ float warp_sums[kLinesTogether][kSumWarps];
  const int64_t entries = dy.outer * dy.inner;
  const int64_t positions = kRowsRun ? dy.rows : entries;
  const int64_t lines = kRowsRun ? entries : dy.rows;
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int64_t strips = (positions + strip_of(blockDim.x) - 1) / strip_of(blockDim.x);
  for (int64_t item = blockIdx.x; item < strips * chunks.count; item += gridDim.x) {
    const int64_t strip = item % strips;
    const int64_t chunk = item / strips;
    const int64_t first = strip * strip_of(blockDim.x) + warp * kWarpSize * kPositions + lane;
    const int64_t begin = chunk * chunks.rows;
    const int64_t end = begin + chunks.rows < lines ? begin + chunks.rows : lines;
    const float* sources[kPositions];
    double sums[kPositions] = {};
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      const int64_t position = first + i * kWarpSize;
      sources[i] = position < positions ? dy.data + position_offset<kRowsRun>(dy, position) : nullptr;
    }
    for (int64_t line = begin; line < end; line += kLinesTogether) {
      const int together = end - line < kLinesTogether ? static_cast<int>(end - line) : kLinesTogether;
      for (int next = 0; next < together; next += kLinesInFlight) {
        float values[kLinesInFlight][kPositions];
#pragma unroll
        for (int i = 0; i < kLinesInFlight; ++i) {
          const bool in_chunk = next + i < together;
          const int64_t offset = in_chunk ? line_offset<kRowsRun>(dy, line + next + i) : 0;
#pragma unroll
          for (int j = 0; j < kPositions; ++j) {
            values[i][j] = in_chunk && sources[j] != nullptr ? sources[j][offset] : 0.0f;
          }
        }
#pragma unroll
        for (int i = 0; i < kLinesInFlight; ++i) {
          float line_sum = 0.0f;
#pragma unroll
          for (int j = 0; j < kPositions; ++j) {
            sums[j] += values[i][j];
            line_sum += values[i][j];
          }
#pragma unroll
          for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
            line_sum += __shfl_down_sync(kAllLanes, line_sum, distance);
          }
          if (lane == 0) warp_sums[next + i][warp] = line_sum;
        }
      }
      __syncthreads();
      if (line_sums != nullptr && threadIdx.x < together) {
        double sum = 0.0;
        for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) sum += warp_sums[threadIdx.x][i];
        line_sums[strip * lines + line + threadIdx.x] = static_cast<float>(sum);
      }
      __syncthreads();
    }
    if (position_sums == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      if (sources[i] == nullptr) continue;
      position_sums[chunk * positions + first + i * kWarpSize] = static_cast<float>(sums[i]);
    }
  }
}

// target (extent) = the sum of its parts (count, extent), in double and in their order.
struct Parts {
  const float* parts;
  int64_t count;
  int64_t extent;
  float* target;
};

constexpr int kPartLanes = 8;

// Grid (extent of the first / 32 + extent of the second / 32), block (32 elements, 8 lanes of parts).
__global__ void add_parts(Parts first, Parts second) {
  __shared__ double lane_sums[kPartLanes][kWarpSize];
  const int64_t blocks_of_first = (first.extent + kWarpSize - 1) / kWarpSize;
  const bool is_first = blockIdx.x < blocks_of_first;
  const Parts parts = is_first ? first : second;
  const int64_t element = (blockIdx.x - (is_first ? 0 : blocks_of_first)) * kWarpSize + threadIdx.x;
  double sum = 0.0;
  if (element < parts.extent) {
    for (int64_t part = threadIdx.y; part < parts.count; part += kPartLanes) {
      sum += parts.parts[part * parts.extent + element];
    }
  }
  lane_sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || element >= parts.extent) return;
  for (int lane = 1; lane < kPartLanes; ++lane) sum += lane_sums[lane][threadIdx.x];
  parts.target[element] = static_cast<float>(sum);
}

// How a gradient of y is walked over.
struct Walk {
  bool rows_run;
  int threads;
  int64_t positions;
  int64_t lines;
  int64_t strips;
  Chunks chunks;
};

inline Walk walk_of(const Cotangent& dy) {
  const int64_t entries = dy.outer * dy.inner;
  const int64_t entry_stride = dy.inner > 1 ? dy.inner_stride : dy.outer_stride;
  const bool rows_run = entries == 1 || (dy.rows > 1 && dy.row_stride <= entry_stride);
  const int64_t positions = rows_run ? dy.rows : entries;
  const int64_t lines = rows_run ? entries : dy.rows;
  const int threads = static_cast<int>(threads_for(positions, kSumThreads));
  const int64_t strips = ceil_div(positions, strip_of(threads));
  return {rows_run, threads, positions, lines, strips, chunks_of(lines, kLinesTogether)};
}

// One float more than needed at the least: torch gives empty tensors a null address, which reads as "not wanted".
int64_t cotangent_scratch(const Cotangent& dy) {
  const Walk walk = walk_of(dy);
  return walk.chunks.count * walk.positions + walk.strips * walk.lines + 1;
}

LaunchStatus launch_cotangent_sums(const Cotangent& dy, float* minima, float* bias, float* scratch, int device,
                                   void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const Walk walk = walk_of(dy);
  float* const position_target = walk.rows_run ? minima : bias;
  float* const line_target = walk.rows_run ? bias : minima;
  float* const position_parts = position_target != nullptr ? scratch : nullptr;
  float* const line_parts = line_target != nullptr ? scratch + walk.chunks.count * walk.positions : nullptr;
  if (walk.strips * walk.chunks.count > 0) {
    const unsigned blocks = grid_for(walk.strips * walk.chunks.count);
    if (walk.rows_run) {
      sum_both_ways<true><<<blocks, walk.threads, 0, stream>>>(dy, walk.chunks, position_parts, line_parts);
    } else {
      sum_both_ways<false><<<blocks, walk.threads, 0, stream>>>(dy, walk.chunks, position_parts, line_parts);
    }
    const LaunchStatus status = launched("sum_both_ways");
    if (status.kernel != nullptr) return status;
  }
  const Parts of_positions = {position_parts, walk.chunks.count, position_target ? walk.positions : 0, position_target};
  const Parts of_lines = {line_parts, walk.strips, line_target ? walk.lines : 0, line_target};
  const int64_t blocks = ceil_div(of_positions.extent, kWarpSize) + ceil_div(of_lines.extent, kWarpSize);
  if (blocks == 0) return {nullptr, nullptr};
  add_parts<<<grid_for(blocks), dim3(kWarpSize, kPartLanes), 0, stream>>>(of_positions, of_lines);
  return launched("add_parts");
}

// The gradient of a minimum reaches one channel of the row, and behind group norm only the group of that channel. With
// j the column of the minimum, g the gradient of it, n the length of a group and xhat = (z - mean) * rstd,
//     dz[i] = g * weight[j] * rstd * ((i == j) - (1 + xhat[i] * xhat[j]) / n)    within the group, 0 outside,
// and dweight[j] = sum(g * xhat[j]), dbias[j] = sum(g), each over the rows whose minimum lies in column j. All that has
// to be summed over rows is summed over lists: of each group's rows, in ascending order. What is left of the one after
// the other in dz may be little, and whole rows of gradients are proportional to it: rounding z would show. So z of
// these groups is computed again, in double.

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

constexpr int kListThreads = 1024;
constexpr int kGroupsInShared = 4096;  // whose cursors fit 16 KB of shared memory

// The sum of the values of all threads before this one, and of all; `scratch` is shared, kMaxWarps of them.
__device__ inline int sum_before(int value, int* scratch, int& total) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  int running = value;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int below = __shfl_up_sync(kAllLanes, running, distance);
    if (lane >= distance) running += below;
  }
  __syncthreads();  // the scratch is free
  if (lane == kWarpSize - 1) scratch[warp] = running;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) {
    if (i < warp) before += scratch[i];
    total += scratch[i];
  }
  return before + running - value;
}

// One block: sorts the rows by the groups of their minima. Counts are integers, the same in any order; places are given
// in ascending order of rows, by one warp, so that lists are the same in every run.
__global__ void __launch_bounds__(kListThreads)
    list_rows_of_groups(const int* __restrict__ columns, Shape shape, Workspace workspace) {
  __shared__ int shared_cursors[kGroupsInShared];
  __shared__ int row_groups[kListThreads];
  __shared__ int scratch[kMaxWarps];
  const int rows = static_cast<int>(shape.rows);
  const int groups = static_cast<int>(shape.groups);
  const int length = static_cast<int>(shape.columns / shape.groups);
  int* const cursors = groups <= kGroupsInShared ? shared_cursors : workspace.cursors;
  for (int group = threadIdx.x; group < groups; group += kListThreads) cursors[group] = 0;
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += kListThreads) atomicAdd(&cursors[columns[row] / length], 1);
  __syncthreads();
  int done = 0;    // rows of the groups so far
  int listed = 0;  // groups so far that have rows
  for (int first = 0; first < groups; first += kListThreads) {
    const int group = first + threadIdx.x;
    const int count = group < groups ? cursors[group] : 0;
    int total;
    const int begin = done + sum_before(count, scratch, total);
    if (group < groups) workspace.begins[group] = cursors[group] = begin;
    done += total;
    const int place = listed + sum_before(count > 0 ? 1 : 0, scratch, total);
    if (count > 0) workspace.listed[place] = group;
    listed += total;
  }
  if (threadIdx.x == 0) workspace.begins[groups] = rows;
  if (threadIdx.x == 0) workspace.listed[groups] = listed;
  const unsigned lane = threadIdx.x % kWarpSize;
  for (int first = 0; first < rows; first += kListThreads) {
    __syncthreads();  // the groups of the rows before have been used; the cursors stand
    if (first + static_cast<int>(threadIdx.x) < rows) row_groups[threadIdx.x] = columns[first + threadIdx.x] / length;
    __syncthreads();
    if (threadIdx.x >= kWarpSize) continue;
    for (int start = 0; start < kListThreads && first + start < rows; start += kWarpSize) {
      const int row = first + start + static_cast<int>(lane);
      const int group = row < rows ? row_groups[start + lane] : -1;
      const unsigned same = __match_any_sync(kAllLanes, group);
      const int before = __popc(same & ((1u << lane) - 1));
      if (group >= 0) workspace.order[cursors[group] + before] = row;
      __syncwarp();  // every lane has read the cursor
      if (group >= 0 && before == 0) cursors[group] += __popc(same);
      __syncwarp();
    }
  }
}

constexpr int kProductThreads = 256;
constexpr int kZRows = 4;  // of the tile of z that a block computes
constexpr int kZColumns = 4;

// z (rows, columns / groups) of the group of each row's minimum. Grid (rows in their order / kZRows * columns of a
// group / kZColumns); the threads of a block share the features.
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads)
    compute_groups_again(Winners winners, const int* __restrict__ order, Shape shape, double* __restrict__ z) {
  __shared__ double warp_sums[kZRows * kZColumns][kMaxWarps];
  __shared__ int rows[kZRows];
  __shared__ int groups[kZRows];
  const int64_t length = shape.columns / shape.groups;
  const int64_t tiles = (length + kZColumns - 1) / kZColumns;
  const int64_t items = (shape.rows + kZRows - 1) / kZRows * tiles;
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t first = item / tiles * kZRows;
    const int64_t first_column = item % tiles * kZColumns;  // within the group
    const int count = shape.rows - first < kZRows ? static_cast<int>(shape.rows - first) : kZRows;
    const int columns = length - first_column < kZColumns ? static_cast<int>(length - first_column) : kZColumns;
    __syncthreads();  // the rows before have been used
    if (threadIdx.x < count) {
      rows[threadIdx.x] = order[first + threadIdx.x];
      groups[threadIdx.x] = static_cast<int>(winners.columns[rows[threadIdx.x]] / length);
    }
    __syncthreads();
    for (int run = 0, next = 0; run < count; run = next) {  // neighbours of one group
      while (next < count && groups[next] == groups[run]) ++next;
      const int64_t column = groups[run] * length + first_column;
      double sums[kZRows][kZColumns] = {};
      for (int64_t feature = threadIdx.x * kWidth; feature < winners.features; feature += blockDim.x * kWidth) {
        float weights[kZColumns][kWidth] = {};
#pragma unroll
        for (int j = 0; j < kZColumns; ++j) {
          if (j < columns) load_vector<kWidth>(winners.weight + (column + j) * winners.features + feature, weights[j]);
        }
#pragma unroll
        for (int i = 0; i < kZRows; ++i) {
          if (i < run || i >= next) continue;
          float values[kWidth];
          load_vector<kWidth>(winners.x + rows[i] * winners.features + feature, values);
#pragma unroll
          for (int j = 0; j < kZColumns; ++j) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sums[i][j] += static_cast<double>(values[k]) * weights[j][k];
          }
        }
      }
      __syncthreads();  // the sums of the run before have been read
#pragma unroll
      for (int i = 0; i < kZRows * kZColumns; ++i) {
        const double sum = warp_reduce(sums[i / kZColumns][i % kZColumns], AddDoubles());
        if (lane == 0) warp_sums[i][warp] = sum;
      }
      __syncthreads();
      const int row = run + static_cast<int>(threadIdx.x) / kZColumns;
      const int within = threadIdx.x % kZColumns;
      if (row >= next || within >= columns) continue;
      double sum = winners.linear_bias[column + within];
      for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) sum += warp_sums[row * kZColumns + within][i];
      z[rows[row] * length + first_column + within] = sum;
    }
  }
}

// Grid (rows / 8), one warp a row: dz from z, and what the row adds to the gradient of its winner's weight.
__global__ void __launch_bounds__(kSumThreads)
    differentiate_groups(Winners winners, Workspace workspace, Shape shape, double eps) {
  const int64_t length = shape.columns / shape.groups;
  const double count = static_cast<double>(length);
  const int lane = threadIdx.x % kWarpSize;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSumWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kSumWarps + threadIdx.x / kWarpSize; row < shape.rows;
       row += step) {
    const double* z = workspace.z + row * length;
    const int64_t winner = winners.columns[row] % length;
    double sum = 0.0;
    for (int64_t i = lane; i < length; i += kWarpSize) sum += z[i];
    const double mean = __shfl_sync(kAllLanes, warp_reduce(sum, AddDoubles()), 0) / count;
    double m2 = 0.0;
    for (int64_t i = lane; i < length; i += kWarpSize) m2 += (z[i] - mean) * (z[i] - mean);
    const double variance = __shfl_sync(kAllLanes, warp_reduce(m2, AddDoubles()), 0) / count;
    const double rstd = 1.0 / sqrt(variance + eps);
    const double winner_xhat = (z[winner] - mean) * rstd;
    const double gradient = workspace.minima[row];
    const double scale = gradient * winners.norm_weight[winners.columns[row]] * rstd;
    for (int64_t i = lane; i < length; i += kWarpSize) {
      const double share = (1.0 + (z[i] - mean) * rstd * winner_xhat) / count;
      workspace.dz[row * length + i] = static_cast<float>(scale * ((i == winner ? 1.0 : 0.0) - share));
    }
    if (lane == 0) workspace.norm_weight[row] = static_cast<float>(gradient * winner_xhat);
  }
}

// Grid (columns / 8), one warp a column, its lanes along the list of the column's group.
__global__ void __launch_bounds__(kSumThreads)
    sum_lists(const int* __restrict__ columns, Workspace workspace, Shape shape, Gradients gradients) {
  const int64_t length = shape.columns / shape.groups;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumWarps + threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  if (column >= shape.columns) return;
  const int end = workspace.begins[column / length + 1];
  double shift = 0.0;
  double weight = 0.0;
  double bias = 0.0;
  for (int i = workspace.begins[column / length] + lane; i < end; i += kWarpSize) {
    const int64_t row = workspace.order[i];
    shift += workspace.dz[row * length + column % length];
    if (columns[row] != column) continue;
    weight += workspace.norm_weight[row];
    bias += workspace.minima[row];
  }
  shift = warp_reduce(shift, AddDoubles());
  weight = warp_reduce(weight, AddDoubles());
  bias = warp_reduce(bias, AddDoubles());
  if (lane != 0) return;
  if (gradients.linear_bias != nullptr) gradients.linear_bias[column] = static_cast<float>(shift);
  if (gradients.norm_weight != nullptr) gradients.norm_weight[column] = static_cast<float>(weight);
  if (gradients.norm_bias != nullptr) gradients.norm_bias[column] = static_cast<float>(bias);
}

void launch_groups_again(const Winners& winners, const Workspace& workspace, const Shape& shape, cudaStream_t stream) {
  const int64_t features = winners.features;
  const bool by_four = reads_as_vectors(winners.x, features) && reads_as_vectors(winners.weight, features);
  const unsigned threads = threads_for(by_four ? features : 4 * features, kProductThreads);
  const unsigned blocks = grid_for(ceil_div(shape.rows, kZRows) * ceil_div(shape.columns / shape.groups, kZColumns));
  if (by_four) {
    compute_groups_again<4><<<blocks, threads, 0, stream>>>(winners, workspace.order, shape, workspace.z);
  } else {
    compute_groups_again<1><<<blocks, threads, 0, stream>>>(winners, workspace.order, shape, workspace.z);
  }
}

LaunchStatus launch_group_gradients(const Winners& winners, const Shape& shape, double eps, const Workspace& workspace,
                                    const Gradients& gradients, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  list_rows_of_groups<<<1, kListThreads, 0, stream>>>(winners.columns, shape, workspace);
  LaunchStatus status = launched("list_rows_of_groups");
  if (status.kernel == nullptr && shape.rows > 0) {
    launch_groups_again(winners, workspace, shape, stream);
    status = launched("compute_groups_again");
  }
  if (status.kernel == nullptr && shape.rows > 0) {
    differentiate_groups<<<grid_for(ceil_div(shape.rows, kSumWarps)), kSumThreads, 0, stream>>>(winners, workspace,
                                                                                                shape, eps);
    status = launched("differentiate_groups");
  }
  const bool wants_columns =
      gradients.linear_bias != nullptr || gradients.norm_weight != nullptr || gradients.norm_bias != nullptr;
  if (status.kernel != nullptr || !wants_columns) return status;
  sum_lists<<<grid_for(ceil_div(shape.columns, kSumWarps)), kSumThreads, 0, stream>>>(winners.columns, workspace, shape,
                                                                                      gradients);
  return launched("sum_lists");
}

// The two products of the backward over what is not zero: dz has one group of columns in each row. Rows come in the
// order of their groups, so that rows of one group share what they read. A float32 sum is kept short: what is summed in
// registers goes to the sums in memory every kDepth, or kListDepth, terms.

constexpr int kRowsTogether = 8;     // rows of dx that a block computes
constexpr int kDepth = 32;           // columns of a group that are summed in one go
constexpr int kColumnsTogether = 8;  // rows of dweight that a block computes
constexpr int kListLanes = 4;        // threads that share a list
constexpr int kListDepth = 64;       // rows of a list that are summed in one go
constexpr int64_t kGatherBlocks = 1024;

// values += source
template <int kWidth>
__device__ inline void add_vector(const float* source, float* values) {
  float others[kWidth];
  load_vector<kWidth>(source, others);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] += others[i];
}

// dx[row] = sum over the group of the row's minimum of dz[row, i] * weight[i]. Grid (strips of features * rows in their
// order / kRowsTogether).
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads)
    multiply_by_groups(Winners winners, Workspace workspace, Shape shape, float* dx) {
  __shared__ float coefficients[kRowsTogether][kDepth];
  __shared__ int rows[kRowsTogether];
  __shared__ int groups[kRowsTogether];
  const int64_t length = shape.columns / shape.groups;
  const int64_t features = winners.features;
  const int64_t strips = (features + blockDim.x * kWidth - 1) / (blockDim.x * kWidth);
  const int64_t items = (shape.rows + kRowsTogether - 1) / kRowsTogether * strips;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t feature = (item % strips * blockDim.x + threadIdx.x) * kWidth;
    const int64_t first = item / strips * kRowsTogether;
    const int count = shape.rows - first < kRowsTogether ? static_cast<int>(shape.rows - first) : kRowsTogether;
    __syncthreads();  // the rows before have been used
    if (threadIdx.x < count) {
      rows[threadIdx.x] = workspace.order[first + threadIdx.x];
      groups[threadIdx.x] = static_cast<int>(winners.columns[rows[threadIdx.x]] / length);
    }
    __syncthreads();
    for (int run = 0, next = 0; run < count; run = next) {  // neighbours of one group
      while (next < count && groups[next] == groups[run]) ++next;
      for (int64_t start = 0; start < length; start += kDepth) {
        const int depth = length - start < kDepth ? static_cast<int>(length - start) : kDepth;
        __syncthreads();  // the coefficients before have been used
        for (int i = threadIdx.x; i < (next - run) * kDepth; i += blockDim.x) {
          const int row = run + i / kDepth;
          if (i % kDepth < depth) coefficients[row][i % kDepth] = workspace.dz[rows[row] * length + start + i % kDepth];
        }
        __syncthreads();
        if (feature >= features) continue;
        const float* const of_group = winners.weight + (groups[run] * length + start) * features + feature;
        float sums[kRowsTogether][kWidth] = {};
#pragma unroll 4
        for (int i = 0; i < depth; ++i) {
          float values[kWidth];
          load_vector<kWidth>(of_group + i * features, values);
#pragma unroll
          for (int row = 0; row < kRowsTogether; ++row) {
            if (row < run || row >= next) continue;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) sums[row][j] += coefficients[row][i] * values[j];
          }
        }
#pragma unroll
        for (int row = 0; row < kRowsTogether; ++row) {
          if (row < run || row >= next) continue;
          float* const target = dx + rows[row] * features + feature;
          if (start > 0) add_vector<kWidth>(target, sums[row]);
          store_vector<kWidth>(target, sums[row]);
        }
      }
    }
  }
}

constexpr int kAcross = kProductThreads / kListLanes;  // threads along the features

// The part of dweight that a block of gather_lists owns.
struct ListTile {
  int64_t group;
  int64_t first;    // of its columns, within the group
  int columns;
  int64_t feature;  // this thread's first
  int across;       // where that lies in the block
  int lane;         // this thread's share of the list
};

template <int kWidth>
using LaneSums = float[kListLanes][kColumnsTogether][kAcross * kWidth];

// lane_sums[lane][i] = sum over this lane's rows of the list of dz[row, i] * x[row]. All threads of the block call.
template <int kWidth>
__device__ inline void sum_list(const Workspace& workspace, const float* x, int64_t length, int64_t features,
                                const ListTile& tile, LaneSums<kWidth>& lane_sums) {
  __shared__ float coefficients[kListDepth][kColumnsTogether];
  __shared__ int rows[kListDepth];
  const int begin = workspace.begins[tile.group];
  const int end = workspace.begins[tile.group + 1];
  for (int start = begin; start < end; start += kListDepth) {
    const int count = end - start < kListDepth ? end - start : kListDepth;
    __syncthreads();  // the rows before have been used
    for (int i = threadIdx.x; i < count * kColumnsTogether; i += blockDim.x) {
      const int64_t row = workspace.order[start + i / kColumnsTogether];
      const int column = i % kColumnsTogether;
      if (column == 0) rows[i / kColumnsTogether] = static_cast<int>(row);
      coefficients[i / kColumnsTogether][column] =
          column < tile.columns ? workspace.dz[row * length + tile.first + column] : 0.0f;
    }
    __syncthreads();
    if (tile.feature >= features) continue;
    float sums[kColumnsTogether][kWidth] = {};
#pragma unroll 4
    for (int i = tile.lane; i < count; i += kListLanes) {
      float values[kWidth];
      load_vector<kWidth>(x + rows[i] * features + tile.feature, values);
#pragma unroll
      for (int column = 0; column < kColumnsTogether; ++column) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[column][j] += coefficients[i][column] * values[j];
      }
    }
#pragma unroll
    for (int column = 0; column < kColumnsTogether; ++column) {
      float* const target = &lane_sums[tile.lane][column][tile.across];
      if (start > begin) add_vector<kWidth>(target, sums[column]);
      store_vector<kWidth>(target, sums[column]);
    }
  }
}

// dweight[column] = sum over the list of the column's group of dz[row, column] * x[row], for groups that have one.
// Blocks, as many as there are or kGatherBlocks, take strips of features * columns of a group / kColumnsTogether *
// groups in turn.
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads, 2)
    gather_lists(Workspace workspace, const float* __restrict__ x, Shape shape, int64_t features,
                 float* __restrict__ dweight) {
  __shared__ __align__(16) LaneSums<kWidth> lane_sums;
  const int64_t length = shape.columns / shape.groups;
  const int64_t strips = (features + kAcross * kWidth - 1) / (kAcross * kWidth);
  const int64_t tiles = (length + kColumnsTogether - 1) / kColumnsTogether;
  const int64_t items = strips * tiles * workspace.listed[shape.groups];
  const int across = threadIdx.x % kAcross * kWidth;
  const int lane = threadIdx.x / kAcross;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t group = workspace.listed[item / strips / tiles];
    const int64_t first = item / strips % tiles * kColumnsTogether;
    const int columns = length - first < kColumnsTogether ? static_cast<int>(length - first) : kColumnsTogether;
    const ListTile tile = {group, first, columns, item % strips * kAcross * kWidth + across, across, lane};
    sum_list<kWidth>(workspace, x, length, features, tile, lane_sums);
    __syncthreads();
    for (int column = lane; column < columns && tile.feature < features; column += kListLanes) {
      float sums[kWidth] = {};
#pragma unroll
      for (int i = 0; i < kListLanes; ++i) add_vector<kWidth>(&lane_sums[i][column][across], sums);
      store_vector<kWidth>(dweight + (group * length + first + column) * features + tile.feature, sums);
    }
    __syncthreads();  // the lanes' sums have been read
  }
}

// dweight[column] = 0 where no row's minimum lies in the column's group. Grid (strips of features * columns /
// kColumnsTogether).
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads)
    clear_unlisted(const int* __restrict__ begins, Shape shape, int64_t features, float* __restrict__ dweight) {
  const float zeros[kWidth] = {};
  const int columns = static_cast<int>(shape.columns);
  const int length = columns / static_cast<int>(shape.groups);
  const int64_t strips = (features + blockDim.x * kWidth - 1) / (blockDim.x * kWidth);
  const int tiles = (columns - 1) / kColumnsTogether + 1;
  for (int64_t item = blockIdx.x; item < strips * tiles; item += gridDim.x) {
    const int64_t feature = (item % strips * blockDim.x + threadIdx.x) * kWidth;
    const int first = static_cast<int>(item / strips) * kColumnsTogether;
    if (feature >= features) continue;
    for (int column = first; column < columns && column - first < kColumnsTogether; ++column) {
      const int group = column / length;
      if (begins[group] == begins[group + 1]) store_vector<kWidth>(dweight + column * features + feature, zeros);
    }
  }
}

LaunchStatus launch_input_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape, float* dx,
                                   int device, void* stream_handle) {
  const int64_t features = winners.features;
  if (shape.rows == 0 || features == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const bool by_four = reads_as_vectors(winners.weight, features) && reads_as_vectors(dx, features);
  const unsigned threads = threads_for(by_four ? features : 4 * features, kProductThreads);
  const int64_t strips = ceil_div(features, static_cast<int64_t>(threads) * (by_four ? 4 : 1));
  const unsigned blocks = grid_for(ceil_div(shape.rows, kRowsTogether) * strips);
  if (by_four) {
    multiply_by_groups<4><<<blocks, threads, 0, stream>>>(winners, workspace, shape, dx);
  } else {
    multiply_by_groups<1><<<blocks, threads, 0, stream>>>(winners, workspace, shape, dx);
  }
  return launched("multiply_by_groups");
}

template <int kWidth>
LaunchStatus launch_weight_kernels(const Workspace& workspace, const float* x, const Shape& shape, int64_t features,
                                   float* dweight, cudaStream_t stream) {
  const unsigned threads = threads_for(features * 4 / kWidth, kProductThreads);
  const int64_t clear_strips = ceil_div(features, static_cast<int64_t>(threads) * kWidth);
  const int64_t clear_items = clear_strips * ceil_div(shape.columns, kColumnsTogether);
  clear_unlisted<kWidth>
      <<<grid_for(clear_items), threads, 0, stream>>>(workspace.begins, shape, features, dweight);
  const LaunchStatus status = launched("clear_unlisted");
  if (status.kernel != nullptr || shape.rows == 0) return status;
  const int64_t listed = shape.groups < shape.rows ? shape.groups : shape.rows;  // groups that can have a list
  const int64_t strips = ceil_div(features, kAcross * kWidth);
  const int64_t items = strips * ceil_div(shape.columns / shape.groups, kColumnsTogether) * listed;
  const unsigned blocks = static_cast<unsigned>(items < kGatherBlocks ? items : kGatherBlocks);
  gather_lists<kWidth><<<blocks, kProductThreads, 0, stream>>>(workspace, x, shape, features, dweight);
  return launched("gather_lists");
}

LaunchStatus launch_weight_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape,
                                    float* dweight, int device, void* stream_handle) {
  if (winners.features == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  if (reads_as_vectors(winners.x, winners.features) && reads_as_vectors(dweight, winners.features)) {
    return launch_weight_kernels<4>(workspace, winners.x, shape, winners.features, dweight, stream);
  }
  return launch_weight_kernels<1>(workspace, winners.x, shape, winners.features, dweight, stream);
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

#include <vector>

namespace OP_NAMESPACE {

constexpr auto kInt = torch::headeronly::ScalarType::Int;

void check_matrix(const Tensor& tensor, const Tensor& x, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 2, name, " must have 2 dimensions, got ", tensor.dim());
}

void check_vector(const Tensor& tensor, const Tensor& x, int64_t length, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == length, name, " must have ", length, " elements");
}

Shape checked_shape(int64_t rows, int64_t columns, int64_t groups) {
  STD_TORCH_CHECK(groups > 0 && columns > 0 && columns % groups == 0, columns, " features cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(columns <= 0x7fffffff, columns, " features are more than the kernels count");
  STD_TORCH_CHECK(rows <= 0x3fffffff, rows, " samples are more than the kernels count");
  return {rows, columns, groups};
}

// The dimensions of what minima (rows, 1) and a bias broadcast to: those of the bias, but its last but one.
std::vector<int64_t> broadcast_sizes(int64_t rows, const Tensor& bias) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < bias.dim(); ++i) sizes.push_back(bias.size(i));
  while (sizes.size() < 2) sizes.insert(sizes.begin(), 1);
  int64_t& height = sizes[sizes.size() - 2];
  STD_TORCH_CHECK(rows == 1 || height == 1 || height == rows, "the bias, with ", height,
                  " elements along its last dimension but one, does not broadcast to ", rows, " samples");
  if (rows != 1) height = rows;
  return sizes;
}

// One row's y is its minimum plus the bias as it lies.
Broadcast broadcast_of(int64_t rows, const Tensor& bias) {
  check_float_input(bias, bias, "bias");
  if (rows == 1) return {input_floats(bias), 1, 1, bias.numel(), 0};
  const int64_t inner = bias.dim() > 0 ? bias.size(bias.dim() - 1) : 1;
  const int64_t height = bias.dim() > 1 ? bias.size(bias.dim() - 2) : 1;
  int64_t outer = 1;
  for (int64_t i = 0; i + 2 < bias.dim(); ++i) outer *= bias.size(i);
  return {input_floats(bias), outer, rows, inner, height == 1 ? 0 : inner};
}

using Wanted = std::optional<Tensor>;

float* floats_or_null(Wanted& tensor) { return tensor ? output_floats(*tensor) : nullptr; }

// y and, where it is kept for the backward, the column of each row's minimum.
std::tuple<Tensor, Wanted> forward(const Tensor& product, const Tensor& linear_bias, const Tensor& norm_weight,
                                   const Tensor& norm_bias, const Tensor& bias, const std::optional<Tensor>& moments,
                                   int64_t groups, double eps, bool keep) {
  check_matrix(product, product, "the product");
  const Shape shape = checked_shape(product.size(0), product.size(1), groups);
  check_vector(linear_bias, product, shape.columns, "the bias of the linear layer");
  check_vector(norm_weight, product, shape.columns, "the weight of the group norm");
  check_vector(norm_bias, product, shape.columns, "the bias of the group norm");
  check_float_input(bias, product, "bias");
  const std::vector<int64_t> sizes = broadcast_sizes(shape.rows, bias);
  Tensor y = torch::stable::new_empty(product, sizes);
  Tensor minima = torch::stable::new_empty(product, {shape.rows});
  Wanted winners;
  if (keep) winners = torch::stable::new_empty(product, {shape.rows}, kInt);
  const Normalisation normalisation = {input_floats(product),   input_floats(linear_bias),
                                       input_floats(norm_weight), input_floats(norm_bias),
                                       moments ? input_floats(*moments) : nullptr,
                                       shape,                   static_cast<float>(eps)};
  check_launch(launch_forward(normalisation, broadcast_of(shape.rows, bias), output_floats(y),
                              winners ? static_cast<int*>(winners->data_ptr()) : nullptr, output_floats(minima),
                              product.get_device_index(), current_stream(product)));
  return {y, winners};
}

// The gradient of y, seen as (outer, rows, inner), whatever its strides.
Cotangent cotangent_of(const Tensor& dy) {
  STD_TORCH_CHECK(dy.scalar_type() == torch::headeronly::ScalarType::Float && dy.dim() == 3,
                  "the gradient of y must be float32 and (outer, rows, inner)");
  return {input_floats(dy), dy.size(0),   dy.size(1),  dy.size(2),
          dy.stride(0),     dy.stride(1), dy.stride(2)};
}

// The gradient of a bias (outer, 1, inner).
Tensor bias_gradient(const Tensor& dy) {
  const Cotangent cotangent = cotangent_of(dy);
  Tensor dbias = torch::stable::new_empty(dy, {cotangent.outer * cotangent.inner});
  Tensor scratch = torch::stable::new_empty(dy, {cotangent_scratch(cotangent)});
  check_launch(launch_cotangent_sums(cotangent, nullptr, output_floats(dbias), output_floats(scratch),
                                     dy.get_device_index(), current_stream(dy)));
  return dbias;
}

// The wanted gradients: of the bias (outer, 1, inner), of the linear layer's bias, of the group norm's weight and bias,
// and of x and the weight of the linear layer.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted, Wanted> backward(
    const Tensor& dy, const Tensor& columns, const Tensor& x, const Tensor& weight, const Tensor& linear_bias,
    const Tensor& norm_weight, int64_t groups, double eps, bool wants_bias, bool wants_linear_bias,
    bool wants_norm_weight, bool wants_norm_bias, bool wants_x, bool wants_weight) {
  const Cotangent cotangent = cotangent_of(dy);
  check_matrix(x, dy, "x");
  check_matrix(weight, dy, "the weight of the linear layer");
  const Shape shape = checked_shape(cotangent.rows, weight.size(0), groups);
  check_vector(linear_bias, dy, shape.columns, "the bias of the linear layer");
  check_vector(norm_weight, dy, shape.columns, "the weight of the group norm");
  STD_TORCH_CHECK(columns.numel() == shape.rows && columns.scalar_type() == kInt && x.size(0) == shape.rows &&
                      x.size(1) == weight.size(1),
                  "what forward kept does not have the shape of the gradient of y");
  const int device = dy.get_device_index();
  void* const stream = current_stream(dy);
  Wanted dbias, dlinear_bias, dnorm_weight, dnorm_bias;
  if (wants_bias) dbias = torch::stable::new_empty(dy, {cotangent.outer * cotangent.inner});
  if (wants_linear_bias) dlinear_bias = torch::stable::empty_like(norm_weight);
  if (wants_norm_weight) dnorm_weight = torch::stable::empty_like(norm_weight);
  if (wants_norm_bias) dnorm_bias = torch::stable::empty_like(norm_weight);
  const int64_t length = shape.columns / groups;
  Tensor z = torch::stable::new_empty(dy, {shape.rows, length}, torch::headeronly::ScalarType::Double);
  Tensor floats = torch::stable::new_empty(dy, {2 * shape.rows + shape.rows * length + cotangent_scratch(cotangent)});
  Tensor ints = torch::stable::new_empty(dy, {shape.rows + 3 * groups + 2}, kInt);
  int* const order = static_cast<int*>(ints.data_ptr());
  Workspace workspace;
  workspace.dz = output_floats(floats);
  workspace.minima = workspace.dz + shape.rows * length;
  workspace.norm_weight = workspace.minima + shape.rows;
  workspace.z = static_cast<double*>(z.data_ptr());
  workspace.order = order;
  workspace.begins = order + shape.rows;
  workspace.listed = workspace.begins + groups + 1;
  workspace.cursors = workspace.listed + groups + 1;
  const Winners winners = {static_cast<const int*>(columns.data_ptr()), input_floats(x), input_floats(weight),
                           input_floats(linear_bias), input_floats(norm_weight), x.size(1)};
  const Gradients gradients = {floats_or_null(dlinear_bias), floats_or_null(dnorm_weight), floats_or_null(dnorm_bias)};
  check_launch(launch_cotangent_sums(cotangent, workspace.minima, floats_or_null(dbias),
                                     workspace.norm_weight + shape.rows, device, stream));
  check_launch(launch_group_gradients(winners, shape, eps, workspace, gradients, device, stream));
  Wanted dx, dweight;
  if (wants_x) {
    dx = torch::stable::empty_like(x);
    check_launch(launch_input_gradient(winners, workspace, shape, output_floats(*dx), device, stream));
  }
  if (wants_weight) {
    dweight = torch::stable::empty_like(weight);
    check_launch(launch_weight_gradient(winners, workspace, shape, output_floats(*dweight), device, stream));
  }
  return {dbias, dlinear_bias, dnorm_weight, dnorm_bias, dx, dweight};
}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def(
      "forward(Tensor product, Tensor linear_bias, Tensor norm_weight, Tensor norm_bias, Tensor bias, Tensor? moments, "
      "int groups, float eps, bool keep) -> (Tensor, Tensor?)");
  m.def("bias_gradient(Tensor dy) -> Tensor");
  m.def(
      "backward(Tensor dy, Tensor columns, Tensor x, Tensor weight, Tensor linear_bias, Tensor norm_weight, "
      "int groups, float eps, bool wants_bias, bool wants_linear_bias, bool wants_norm_weight, bool wants_norm_bias, "
      "bool wants_x, bool wants_weight) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("bias_gradient", TORCH_BOX(&OP_NAMESPACE::bias_gradient));
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


OPERATORS = build_operators("gemm_group_norm_min_bias_add", LAUNCHERS, CUDA_SOURCE, BINDING_SOURCE)


class FusedFunction(torch.autograd.Function):
    """The kernels as one differentiable operation."""

    @staticmethod
    def forward(ctx, product, moments, x, weight, linear_bias, norm_weight, norm_bias, bias, groups, eps, keep):
        """Return y from the product; ``keep`` for a backward, which needs the minima's columns (batch,)."""
        linear_bias, norm_weight = linear_bias.contiguous(), norm_weight.contiguous()
        y, columns = OPERATORS.forward(
            product, linear_bias, norm_weight, norm_bias.contiguous(), bias.contiguous(), moments, groups, eps, keep
        )
        if keep:
            ctx.save_for_backward(x, weight, linear_bias, norm_weight, columns)
        ctx.groups, ctx.eps, ctx.bias_shape = groups, eps, bias.shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """Return those gradients that autograd asks for."""
        x, weight, linear_bias, norm_weight, columns = ctx.saved_tensors
        wants_x, wants_weight, *wants_columns, wants_bias = ctx.needs_input_grad[2:8]
        rows, shape = columns.shape[0], ctx.bias_shape
        dbias = None
        if wants_bias and dy.numel() == shape.numel():  # the bias has an element for each of y
            dbias, wants_bias = dy.reshape(shape).clone(), False
        # y as the kernels see it: rows are along the last dimension but one.
        outer, inner = (math.prod(shape[:-2]), shape[-1] if shape else 1) if rows != 1 else (1, dy.numel())
        dy = dy.reshape(outer, rows, inner)
        if not (wants_x or wants_weight or any(wants_columns)):
            dbias = OPERATORS.bias_gradient(dy).view(shape) if wants_bias else dbias
            return None, None, None, None, None, None, None, dbias, None, None, None
        summed, dlinear_bias, dnorm_weight, dnorm_bias, dx, dweight = OPERATORS.backward(
            dy,
            columns,
            x,
            weight,
            linear_bias,
            norm_weight,
            ctx.groups,
            ctx.eps,
            wants_bias,
            *wants_columns,
            wants_x,
            wants_weight,
        )
        dbias = summed.view(shape) if wants_bias else dbias
        return None, None, dx, dweight, dlinear_bias, dnorm_weight, dnorm_bias, dbias, None, None, None


class ModelNew(nn.Module):
    """The fused layers with the parameters of the modules they replace; input (batch, in_features), float32."""

    def __init__(self, in_features: int, out_features: int, num_groups: int, bias_shape: tuple[int, ...]):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run all layers; the result is contiguous."""
        if x.dim() != 2:
            raise ValueError(f"x must be (batch, in_features), got {x.dim()} dimension(s)")
        x, weight = x.contiguous(), self.gemm.weight.contiguous()
        # Begun before autograd's bookkeeping: the GPU waits for the host until the first kernel.
        product, moments = torch.mm(x.detach(), weight.detach().t()), None
        return FusedFunction.apply(
            product,
            moments,
            x,
            weight,
            self.gemm.bias,
            self.group_norm.weight,
            self.group_norm.bias,
            self.bias,
            self.group_norm.num_groups,
            self.group_norm.eps,
            torch.is_grad_enabled(),
        )

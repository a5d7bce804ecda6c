# Rendered from templates/gemm_bias_add_hardtanh_mish_group_norm: change that, not this file, and render again.
# template: gemm_bias_add_hardtanh_mish_group_norm
# parameters: {"block_k":16,"block_m":128,"block_n":128,"cluster_m":1,"cluster_n":2,"gemm":"split","partial_depth":1024,"promoted_steps":4,"rows_in_flight":2,"rows_per_block":16,"split_from":30,"stages":7,"thread_m":8,"thread_n":8,"threads":256,"values_per_thread":4}
# digest: sha256:56fd24592fe650468bc843570cbd4ada2db22c89c155fc86357de713d5ee20a6
"""A linear layer, a bias, Hardtanh, Mish and group normalisation, forward and backward.

Computes, for x of shape (batch, in_features), float32, and each group of neighbouring features of each sample:

    z = x @ gemm.weight.T + gemm.bias + bias            (batch, out_features); bias broadcasts
    a = mish(clamp(z, -1, 1)),  mish(h) = h * tanh(log(1 + exp(h)))
    y = (a - mean) / sqrt(variance + eps) * groupnorm.weight + groupnorm.bias

and the gradients of x, gemm.weight (out_features, in_features), gemm.bias, bias, groupnorm.weight and groupnorm.bias
(out_features,), all float32.

Replaces: the addition, ``torch.nn.Hardtanh``, ``torch.nn.Mish``, ``torch.nn.GroupNorm`` and their backwards
(``hardtanh``, ``mish``, ``native_group_norm``), and ``torch.nn.Linear`` and its backward (``addmm``, ``mm``) on
compute capability 9.0. Elsewhere, and for small matrices, the products stay torch's (``mm``).

Why that should be faster: behind the product eager PyTorch reads and writes (batch, out_features) once for every
operator. Here one launch reads the product once and writes y once, and one launch reads dy and the product once and
writes dz once: of what lies between, only the product and two numbers a group are kept. A thread stays on its
columns and walks down 16 rows, so that the columns' parameters are read, and the gradients of the
parameters summed, in registers.
A product of float32's accuracy on tensor cores, about five times as fast as torch's: every value is split into two fp16
halves under a power of two of its row, three products of halves are summed in float32, and registers add up what
tensor cores have summed over 128 depths, since those cut off instead of rounding.

Products:  split_rows       grid (rows), block (256)
           measure_columns  grid (columns / 128, depth / 256), block (256); for an operand that is transposed
           split_columns    grid (depth / 32, rows / 128), block (256); the same
           multiply_split   grid (no more blocks than multiprocessors, in clusters of 2), block (384)
Forward:   normalise_short_groups      grid (columns / columns of a block * rows / 16), block (32 .. 256)
Backward:  differentiate_short_groups  the same grid and block
           add_chunks                  grid (columns / 32), block (32, 8)
Groups of more than 128 features take kernels with one block a group instead, which read it twice:
Forward:   normalise_long_groups       grid (rows * groups), block (64 .. 256)
Backward:  differentiate_long_groups   grid (rows * groups), block (64 .. 256)
           sum_chunks_of_columns       grid (columns / 256 * rows / 16), block (256)

Every reduction has a fixed order (atomics only for maxima): the same input gives the same bits.
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

// One side of a product: `extent` rows of the left matrix, or columns of the right one. Depth is what is summed over;
// depth_runs: whether it runs along memory.
struct Operand {
  const float* values;
  int64_t extent;
  bool depth_runs;
};

// Bytes of scratch memory that launch_split_product wants; 0 where a product is better left to others: devices of
// another compute capability than 9.0, and small matrices.
int64_t split_scratch(const Operand& left, const Operand& right, int64_t k, int device);

// target (m, n) = left (m, k) times right (k, n), in products of halves.
LaunchStatus launch_split_product(const Operand& left, const Operand& right, int64_t k, float* target, uint8_t* scratch,
                                  int device, void* stream);

}  // namespace OP_NAMESPACE
"""

CUDA_SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>

namespace OP_NAMESPACE {

constexpr int kThreads = 256;       // of a block behind the product
constexpr int kValues = 4;          // floats of one group that a thread holds
constexpr int kBatch = kValues;      // the same, by the name that shared pieces know
constexpr int64_t kRowsPerBlock = 16;
constexpr int kRowsInFlight = 2;    // of these, loaded together
constexpr bool kAddBiases = true;    // the product is bare
constexpr int kPromotedSteps = 4;  // of kStep depths, that tensor cores sum by themselves
constexpr int kStages = 7;
constexpr int kClusterM = 1;  // blocks that share a tile of the right matrix
constexpr int kClusterN = 2;  // blocks that share a tile of the left matrix
constexpr int kSplitFrom = 30;  // the least work of a product that is split, as a power of two

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

// Hopper's instructions by name: clusters of blocks, bulk copies to several of them, descriptors of tiles.

// All threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Where a shared variable of this block lies in another block of the cluster.
__device__ __forceinline__ uint32_t address_in(const void* pointer, int rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}

__device__ __forceinline__ void barrier_arrive_in(uint32_t address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}

// Copies to the same place in each of the kBlocks blocks that `mask` names; the bytes count at each one's barrier.
template <int kBlocks>
__device__ __forceinline__ void bulk_share(void* to, const uint8_t* from, uint32_t bytes, uint64_t* barrier,
                                           uint16_t mask) {
  if constexpr (kBlocks == 1) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
        "%4;" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(mask)
        : "memory");
  }
}

// Rows of 128 swizzled bytes, eight of them 1024 bytes apart from the next eight; the address is in units of 16 bytes.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// How two fp16 halves of every value lie in memory, ready for tensor cores. A value of a row, scaled by the row's power
// of two, is high + low: high is the value rounded to fp16, low what is left, rounded as well. 22 bits are kept.
//
// A tile is kTile rows by kStep depths. A row of a tile has kLine bytes: kStep high halves, then kStep low ones, in
// chunks of 16 bytes. Chunk c of row r lies at place c ^ r % 8: this is the 128-byte swizzle that wgmma reads without
// bank conflicts. A tile is contiguous, and so are the tiles of the same rows: one bulk copy brings a tile, without a
// tensor map. What lies outside the matrix is 0.

constexpr int kTile = 128;
constexpr int kStep = 32;
constexpr int kLine = 128;
constexpr int kTileBytes = kTile * kLine;
constexpr int kEight = 8;                        // values of a chunk
constexpr int kChunksOfStep = kStep / kEight;

constexpr unsigned kInfinity = 0x7f800000u;      // bits; more are NaN

inline int64_t steps_of(int64_t depth) { return ceil_div(depth, kStep); }

// The exponent of a row's scale: its largest value, whose bits without the sign are `magnitude`, comes to lie between
// 2^14 and 2^15. Down to 2^-16 of it values keep 22 bits, and none is off by more than 2^-39 of it. A scale above 2^126
// would have an inverse that is no normal float; subnormal values are kept all the same.
__device__ inline int scale_exponent(unsigned magnitude) {
  const int exponent = 14 + 127 - static_cast<int>(magnitude >> 23);
  return exponent < 126 ? exponent : 126;
}

// Rows with infinities or NaN are not multiplied by tensor cores.
__device__ inline float row_scale(unsigned magnitude) {
  return magnitude >= kInfinity ? 0.0f : __int_as_float((127 + scale_exponent(magnitude)) << 23);
}

__device__ inline unsigned magnitude_of(float value) { return __float_as_uint(value) & 0x7fffffffu; }

__device__ inline void split_pair(float first, float second, uint32_t& high, uint32_t& low) {
  const __half2 rounded = __floats2half2_rn(first, second);
  const __half2 rest = __floats2half2_rn(first - __low2float(rounded), second - __high2float(rounded));
  high = *reinterpret_cast<const uint32_t*>(&rounded);
  low = *reinterpret_cast<const uint32_t*>(&rest);
}

// Writes the halves of eight neighbours into their row of a tile. 0 times infinity would be NaN: a scale of 0 clears.
__device__ inline void store_halves(const float (&values)[kEight], float scale, uint8_t* line, int row, int chunk) {
  uint32_t high[kEight / 2];
  uint32_t low[kEight / 2];
#pragma unroll
  for (int i = 0; i < kEight / 2; ++i) {
    split_pair(scale == 0.0f ? 0.0f : values[2 * i] * scale, scale == 0.0f ? 0.0f : values[2 * i + 1] * scale, high[i],
               low[i]);
  }
  const int across = row % 8;
  uint4* const chunks = reinterpret_cast<uint4*>(line);
  chunks[chunk ^ across] = make_uint4(high[0], high[1], high[2], high[3]);
  chunks[(chunk + kChunksOfStep) ^ across] = make_uint4(low[0], low[1], low[2], low[3]);
}

// The splitting kernels: from float32 to tiles of halves (tiles.cuh). Rows beyond the matrix, up to a whole number of
// tiles of a cluster, are cleared.

constexpr int kSplitThreads = 256;
constexpr int kHeldEights = 4;  // of a row, that a thread keeps from one pass to the next

template <int kWidth>
__device__ inline void load_eight(const float* row, int64_t eight, int64_t depth, float (&values)[kEight]) {
#pragma unroll
  for (int i = 0; i < kEight; i += kWidth) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[i + j] = 0.0f;
    if (eight * kEight + i < depth) load_vector<kWidth>(row + eight * kEight + i, values + i);
  }
}

__device__ inline unsigned largest_of(const float (&values)[kEight]) {
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) largest = max(largest, magnitude_of(values[i]));
  return largest;
}

// Rows of a matrix to be split; `extent` of them are the matrix's.
struct RowsToSplit {
  const float* source;
  int64_t extent;
  int64_t count;
  unsigned* magnitudes;  // of rows
  uint8_t* tiles;
};

// Depth runs along memory, in both matrices. Grid (rows of both): one block a row. It also clears counters.
template <int kWidth>
__global__ void __launch_bounds__(kSplitThreads)
    split_rows(RowsToSplit left, RowsToSplit right, int64_t depth, int64_t steps, unsigned* counters, int64_t count) {
  __shared__ unsigned of_warps[kSplitThreads / 32];
  const bool of_left = blockIdx.x < left.count;
  const RowsToSplit rows = of_left ? left : right;
  const int64_t row = of_left ? blockIdx.x : blockIdx.x - left.count;
  const float* const values = rows.source + row * depth;
  const int64_t inside = row < rows.extent ? depth : 0;
  if (blockIdx.x == 0) {
    for (int64_t i = threadIdx.x; i < count; i += kSplitThreads) counters[i] = 0;
  }
  const int64_t eights = steps * kChunksOfStep;
  float held[kHeldEights][kEight];
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kHeldEights; ++i) load_eight<kWidth>(values, threadIdx.x + i * kSplitThreads, inside, held[i]);
#pragma unroll
  for (int i = 0; i < kHeldEights; ++i) largest = max(largest, largest_of(held[i]));
  for (int64_t eight = threadIdx.x + kHeldEights * kSplitThreads; eight < eights; eight += kSplitThreads) {
    float more[kEight];
    load_eight<kWidth>(values, eight, inside, more);
    largest = max(largest, largest_of(more));
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kSplitThreads / 32; ++warp) largest = max(largest, of_warps[warp]);
  if (threadIdx.x == 0) rows.magnitudes[row] = largest;
  const float scale = row_scale(largest);
  uint8_t* const line = rows.tiles + row / kTile * steps * kTileBytes + row % kTile * kLine;
  const int chunk = static_cast<int>(threadIdx.x) % kChunksOfStep;
#pragma unroll
  for (int i = 0; i < kHeldEights; ++i) {
    const int64_t eight = threadIdx.x + i * kSplitThreads;
    if (eight >= eights) break;
    store_halves(held[i], scale, line + eight / kChunksOfStep * kTileBytes, static_cast<int>(row % 8), chunk);
  }
  for (int64_t eight = threadIdx.x + kHeldEights * kSplitThreads; eight < eights; eight += kSplitThreads) {
    float more[kEight];
    load_eight<kWidth>(values, eight, inside, more);
    store_halves(more, scale, line + eight / kChunksOfStep * kTileBytes, static_cast<int>(row % 8), chunk);
  }
}

constexpr int kDepthsTogether = 256;  // of which a block finds the largest

// Extent runs along memory: the largest value of each column, into magnitudes that were cleared. Maxima of bits know no
// order, so that atomics leave the same each time. Grid (strips of 32 kWidth columns, depth / kDepthsTogether).
template <int kWidth>
__global__ void __launch_bounds__(kSplitThreads)
    measure_columns(const float* __restrict__ source, int64_t extent, int64_t depth, unsigned* magnitudes) {
  constexpr int kLines = kSplitThreads / 32;
  __shared__ unsigned of_lines[kLines][32 * kWidth];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(threadIdx.x) / 32;
  const int64_t column = (blockIdx.x * int64_t{32} + lane) * kWidth;
  const int64_t first = blockIdx.y * int64_t{kDepthsTogether} + line;
  unsigned largest[kWidth] = {};
#pragma unroll 8
  for (int64_t i = first; i < first + kDepthsTogether; i += kLines) {
    if (column >= extent || i >= depth) break;
    float values[kWidth];
    load_vector<kWidth>(source + i * extent + column, values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) largest[j] = max(largest[j], magnitude_of(values[j]));
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) of_lines[line][lane * kWidth + j] = largest[j];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kWidth; i += kSplitThreads) {
    unsigned of_all = 0;
#pragma unroll
    for (int j = 0; j < kLines; ++j) of_all = max(of_all, of_lines[j][i]);
    const int64_t target = blockIdx.x * int64_t{32} * kWidth + i;
    if (target < extent) atomicMax(magnitudes + target, of_all);
  }
}

// Extent runs along memory. Grid (steps, tiles): one block a tile, which it turns in shared memory.
template <int kWidth>
__global__ void __launch_bounds__(kSplitThreads)
    split_columns(const float* __restrict__ source, int64_t extent, int64_t depth, int64_t steps,
                  const unsigned* __restrict__ magnitudes, uint8_t* __restrict__ tiles) {
  __shared__ float turned[kStep][kTile + 1];
  const int64_t first_depth = blockIdx.x * int64_t{kStep};
  const int64_t first_row = blockIdx.y * int64_t{kTile};
#pragma unroll
  for (int i = 0; i < kStep * kTile / kWidth / kSplitThreads; ++i) {
    const int vector = static_cast<int>(threadIdx.x) + i * kSplitThreads;
    const int at = vector / (kTile / kWidth);
    const int row = vector % (kTile / kWidth) * kWidth;
    float values[kWidth] = {};
    if (first_depth + at < depth && first_row + row < extent) {
      load_vector<kWidth>(source + (first_depth + at) * extent + first_row + row, values);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) turned[at][row + j] = values[j];
  }
  __syncthreads();
  uint8_t* const tile = tiles + (blockIdx.y * steps + blockIdx.x) * kTileBytes;
#pragma unroll
  for (int i = 0; i < kTile * kChunksOfStep / kSplitThreads; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * kSplitThreads;
    const int row = item / kChunksOfStep;
    const int chunk = item % kChunksOfStep;
    float values[kEight];
#pragma unroll
    for (int j = 0; j < kEight; ++j) values[j] = turned[chunk * kEight + j][row];
    const float scale = row_scale(first_row + row < extent ? magnitudes[first_row + row] : 0);
    store_halves(values, scale, tile + row * kLine, row, chunk);
  }
}

// Splitting the right matrix while the product runs: memory has little to do then. The rows that the first tiles need
// are split before the launch. The others are for three warps of every block, which copy nothing: a warp claims one row
// after another, and counts it at its tile when it is written. Whoever claims runs, so that nobody waits in vain, even
// if blocks have to wait for a place on the device.

// Rows first .. end of the right matrix, all of its tiles included.
struct LaterRows {
  int first;
  int end;
  unsigned* claimed;     // how many of them
  unsigned* written;     // of each tile
  unsigned* magnitudes;  // of rows
  uint8_t* tiles;
};

// Until a tile is written, by the thread that copies it: copies are another proxy's than the stores.
__device__ inline void await_tile(const LaterRows& later, int64_t tile) {
  if (tile * kTile < later.first) return;
  unsigned written = 0;
  while (written < kTile) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(written) : "l"(later.written + tile) : "memory");
  }
  asm volatile("fence.proxy.async;" ::: "memory");
}

// The largest value of a row, in all lanes.
__device__ inline unsigned largest_of_row(const float* row, int64_t depth, int lane) {
  constexpr int kInFlight = 4;
  unsigned largest = 0;
#pragma unroll 1
  for (int64_t eight = lane; eight * kEight < depth; eight += 32 * kInFlight) {
    float values[kInFlight][kEight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) load_eight<4>(row, eight + 32 * i, depth, values[i]);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) largest = max(largest, largest_of(values[i]));
  }
  return __reduce_max_sync(kAllLanes, largest);
}

// Splits rows as long as there are any, by one warp. `extent` of them are the matrix's.
__device__ inline void split_later_rows(const LaterRows& later, const float* source, int64_t extent, int64_t depth,
                                        int steps) {
  constexpr int kInFlight = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  while (later.first < later.end) {
    unsigned claimed = 0;
    if (lane == 0) claimed = atomicAdd(later.claimed, 1u);
    const int row = later.first + static_cast<int>(__shfl_sync(kAllLanes, claimed, 0));
    if (row >= later.end) return;
    const float* const values = source + row * depth;
    const int64_t inside = row < extent ? depth : 0;
    const unsigned largest = largest_of_row(values, inside, lane);
    if (lane == 0) later.magnitudes[row] = largest;
    const float scale = row_scale(largest);
    uint8_t* const line = later.tiles + int64_t{row / kTile} * steps * kTileBytes + row % kTile * kLine;
    const int eights = steps * kChunksOfStep;
#pragma unroll 1
    for (int eight = lane; eight < eights; eight += 32 * kInFlight) {
      float held[kInFlight][kEight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) load_eight<4>(values, eight + 32 * i, inside, held[i]);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int at = eight + 32 * i;
        if (at >= eights) break;
        store_halves(held[i], scale, line + int64_t{at / kChunksOfStep} * kTileBytes, row % 8, at % kChunksOfStep);
      }
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __threadfence();
    __syncwarp();
    if (lane == 0) atomicAdd(later.written + row / kTile, 1u);
  }
}

// A product in float32's accuracy by tensor cores: high high + high low + low high of the halves in tiles.cuh. What is
// left out, low low, is below float32's rounding.
//
// Every multiprocessor has one block and works on one kTile x kTile tile after another. One thread copies, two
// warpgroups multiply 64 rows each; stages of shared memory pass between them, by a barrier for "full" and one for
// "empty" each. A cluster of kClusterM x kClusterN blocks works on neighbouring tiles: each block copies a share of
// what several need, to all of them, since reading it several times is more than L2 has to give.
//
// Tensor cores cut off what does not fit a sum's float32, so that long sums come out too small. Registers take their
// sums over every kPromotedSteps steps, and add them up with rounding.

constexpr int kCluster = kClusterM * kClusterN;
constexpr int kLeftShare = kTileBytes / kClusterN;
constexpr int kRightShare = kTileBytes / kClusterM;
constexpr int kStageBytes = 2 * kTileBytes;
constexpr int kMultiplyThreads = 384;
constexpr int kMultiplyShared = kStages * kStageBytes + 1024;  // tiles begin at multiples of 1024
constexpr int kMultiplyWarps = 8;                                   // of a block, that read its stages
constexpr int kPeers = kClusterM + kClusterN - 1;              // blocks that copy to a block, itself among them
constexpr int kBandTiles = 8;                                  // rows of tiles that are worked on together
constexpr int kBand = kClusterM < kBandTiles ? kBandTiles / kClusterM : 1;

struct SplitOperand {
  const uint8_t* tiles;
  const unsigned* magnitudes;  // of rows
  const float* values;         // value (row, depth) lies at row * row_stride + depth * depth_stride
  int64_t row_stride;
  int64_t depth_stride;
};

struct SplitProduct {
  SplitOperand left;
  SplitOperand right;
  int64_t m;
  int64_t n;
  int64_t k;
  int steps;
  int clusters_m;  // tiles of clusters along m
  int clusters_n;
  LaterRows later;
};

// The tile of a block in its cluster's item. Bands of rows one after another: what a band needs of the left matrix, and
// of the right one meanwhile, stays in L2.
struct TileOf {
  int64_t m;
  int64_t n;

  __device__ TileOf(const SplitProduct& product, int item, int rank) {
    const int band = item / (kBand * product.clusters_n);
    const int left = product.clusters_m - band * kBand;
    const int height = left < kBand ? left : kBand;
    const int within = item - band * kBand * product.clusters_n;
    m = int64_t{band * kBand + within % height} * kClusterM + rank % kClusterM;
    n = int64_t{within / height} * kClusterN + rank / kClusterM;
  }
};

// A ring of stages, seen by one who goes along it.
struct RingPlace {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Rows with infinities or NaN: as float32 has it, one value at a time.
__device__ inline float plain_product(const SplitProduct& product, int64_t m, int64_t n) {
  const float* const left = product.left.values + m * product.left.row_stride;
  const float* const right = product.right.values + n * product.right.row_stride;
  float sum = 0.0f;
#pragma unroll 1
  for (int64_t k = 0; k < product.k; ++k) {
    sum += left[k * product.left.depth_stride] * right[k * product.right.depth_stride];
  }
  return sum;
}

// sum / 2^exponent in two steps, either of which is a normal float.
__device__ inline float unscaled(float sum, int exponent) {
  const int half = exponent / 2;
  return sum * __int_as_float((127 - half) << 23) * __int_as_float((127 - (exponent - half)) << 23);
}

// Writes a thread's share of 64 rows of a tile: wgmma gives it two rows, and of each two neighbours in every eight.
__device__ inline void store_sums(const SplitProduct& product, const float (&sums)[64], int64_t first_m,
                                  int64_t first_n, float* target) {
  constexpr int kColumns = 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int64_t column = first_n + lane % 4 * 2;
  unsigned of_columns[kColumns];
  unsigned largest = 0;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const int64_t n = column + j / 2 * 8 + j % 2;
    of_columns[j] = n < product.n ? __ldcg(product.right.magnitudes + n) : 0;  // may be as young as this launch
    largest = max(largest, of_columns[j]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t m = first_m + warp * 16 + lane / 4 + half * 8;
    if (m >= product.m) continue;
    const unsigned of_row = product.left.magnitudes[m];
    float* const line = target + m * product.n;
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      const int64_t n = column + j * 4;
      float values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        values[i] = unscaled(sums[j * 2 + half * 2 + i], scale_exponent(of_row) + scale_exponent(of_columns[j + i]));
      }
      if (product.n % 2 == 0) {
        if (n < product.n) *reinterpret_cast<float2*>(line + n) = make_float2(values[0], values[1]);
      } else {
        if (n < product.n) line[n] = values[0];
        if (n + 1 < product.n) line[n + 1] = values[1];
      }
    }
    if (max(largest, of_row) < kInfinity) continue;
#pragma unroll 1
    for (int j = 0; j < kColumns; ++j) {
      const int64_t n = column + j / 2 * 8 + j % 2;
      if (n >= product.n) break;
      const unsigned either = max(of_row, product.right.magnitudes[n]);
      if (either > kInfinity) line[n] = __int_as_float(0x7fc00000);
      if (either == kInfinity) line[n] = plain_product(product, m, n);
    }
  }
}

struct StageBarriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Copies this block's shares of every stage, by one thread.
__device__ inline void copy_stages(const SplitProduct& product, uint8_t* ring, StageBarriers& barriers, int rank) {
  const int rank_m = rank % kClusterM;
  const int rank_n = rank / kClusterM;
  unsigned same_m = 0;  // blocks that need this block's share of the left tile
#pragma unroll
  for (int i = 0; i < kClusterN; ++i) same_m |= 1u << (rank_m + i * kClusterM);
  const unsigned same_n = ((1u << kClusterM) - 1) << rank_n * kClusterM;
  RingPlace place;
  for (int item = blockIdx.x / kCluster; item < product.clusters_m * product.clusters_n; item += gridDim.x / kCluster) {
    const TileOf tile(product, item, rank);
    const uint8_t* left = product.left.tiles + tile.m * product.steps * kTileBytes + rank_n * kLeftShare;
    const uint8_t* right = product.right.tiles + tile.n * product.steps * kTileBytes + rank_m * kRightShare;
    await_tile(product.later, tile.n);
    for (int step = 0; step < product.steps; ++step) {
      uint64_t* const full = barriers.full + place.stage;
      uint8_t* const stage = ring + place.stage * kStageBytes;
      barrier_wait(barriers.empty + place.stage, place.phase ^ 1);
      barrier_expect(full, kStageBytes);
      bulk_share<kClusterN>(stage + rank_n * kLeftShare, left, kLeftShare, full, static_cast<uint16_t>(same_m));
      bulk_share<kClusterM>(stage + kTileBytes + rank_m * kRightShare, right, kRightShare, full,
                            static_cast<uint16_t>(same_n));
      left += kTileBytes;
      right += kTileBytes;
      place.advance();
    }
  }
}

// Gives a stage back to all who copy to it: one lane each.
__device__ __forceinline__ void release_stage(uint32_t empty_of_peer, int stage) {
  if (threadIdx.x % 32 < kPeers) {
    barrier_arrive_in(empty_of_peer + stage * static_cast<uint32_t>(sizeof(uint64_t)));
  }
}

// For lane i: the i-th of the blocks that share a tile of either matrix with this one.
__device__ inline int peer_of(int rank, int lane) {
  if (lane < kClusterM) return rank / kClusterM * kClusterM + lane;
  const int other = lane - kClusterM;
  return lane < kPeers ? rank % kClusterM + (other < rank / kClusterM ? other : other + 1) * kClusterM : rank;
}

// Multiplies 64 rows of this block's tiles, by one warpgroup.
__device__ inline void multiply_stages(const SplitProduct& product, uint8_t* ring, StageBarriers& barriers, int rank,
                                       int half, float* target) {
  constexpr uint32_t kLow = kStep * 2 / 16;  // from high halves to low ones, as descriptors count
  constexpr uint32_t kNext = 16 * 2 / 16;    // 16 depths on
  const uint32_t empty_of_peer = address_in(barriers.empty, peer_of(rank, static_cast<int>(threadIdx.x) % 32));
  const uint32_t ring_address = shared_address(ring);
  RingPlace place;
  for (int item = blockIdx.x / kCluster; item < product.clusters_m * product.clusters_n; item += gridDim.x / kCluster) {
    const TileOf tile(product, item, rank);
    float sums[64] = {};
    float promoted[64];
    for (int first = 0; first < product.steps; first += kPromotedSteps) {
      const int left_steps = product.steps - first;
      const int count = left_steps < kPromotedSteps ? left_steps : kPromotedSteps;
      int before = 0;
#pragma unroll 1
      for (int step = 0; step < count; ++step) {
        barrier_wait(barriers.full + place.stage, place.phase);
        const uint32_t stage = ring_address + place.stage * kStageBytes;
        const uint64_t left = tile_descriptor(stage + half * (kTileBytes / 2));
        const uint64_t right = tile_descriptor(stage + kTileBytes);
        begin_products();
#pragma unroll
        for (int k = 0; k < kStep / 16; ++k) {
          multiply_halves(promoted, left + k * kNext, right + kLow + k * kNext, step + k);
          multiply_halves(promoted, left + kLow + k * kNext, right + k * kNext, 1);
          multiply_halves(promoted, left + k * kNext, right + k * kNext, 1);
        }
        commit_products();
        if (step > 0) {
          await_products<1>();
          release_stage(empty_of_peer, before);
        }
        before = place.stage;
        place.advance();
      }
      await_products<0>();
      release_stage(empty_of_peer, before);
#pragma unroll
      for (int i = 0; i < 64; ++i) sums[i] += promoted[i];
    }
    store_sums(product, sums, tile.m * kTile + half * 64, tile.n * kTile, target);
  }
}

// Grid (blocks of clusters that run at the same time): see above.
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kMultiplyThreads, 1)
    multiply_split(const __grid_constant__ SplitProduct product, float* target) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t shared[];
  __shared__ StageBarriers barriers;
  uint8_t* const ring = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(barriers.full + i, 1);
      barrier_init(barriers.empty + i, kMultiplyWarps * kPeers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();
  if (threadIdx.x / 128 == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    if (threadIdx.x == 0) copy_stages(product, ring, barriers, rank);
    if (threadIdx.x >= 32) {
      split_later_rows(product.later, product.right.values, product.n, product.k, product.steps);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    multiply_stages(product, ring, barriers, rank, static_cast<int>(threadIdx.x) / 128 - 1, target);
  }
  cluster_sync();  // nobody leaves while others copy to it, or tell it of an empty stage
#endif
}

// Chooses, splits and multiplies.

// Below any of these, splitting costs more than tensor cores save: rows or columns, tiles for half of an H100, work.
constexpr int64_t kFewestRows = kSplitFrom > 0 ? 256 : 1;
constexpr int64_t kFewestResults = kSplitFrom > 0 ? 64 * int64_t{kTile} * kTile : 1;
constexpr int64_t kFewestProducts = int64_t{1} << kSplitFrom;
// A right matrix that has to be transposed costs twice as much to split. So either so many rows share it, or there are
// twice as many products.
constexpr int64_t kFewestSharing = kSplitFrom > 0 ? 512 : 1;

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Where the parts of the scratch memory lie.
struct SplitLayout {
  int64_t steps;
  int64_t rows_left;  // of all tiles of clusters
  int64_t rows_right;

  SplitLayout(int64_t m, int64_t n, int64_t k)
      : steps(steps_of(k)),
        rows_left(ceil_div(m, kTile * kClusterM) * kTile * kClusterM),
        rows_right(ceil_div(n, kTile * kClusterN) * kTile * kClusterN) {}

  int64_t bytes_of(int64_t rows) const { return rows * steps * kLine; }
  int64_t counters() const { return 1 + rows_right / kTile; }  // of LaterRows
  int64_t bytes() const {
    return bytes_of(rows_left + rows_right) +
           (rows_left + rows_right + counters()) * static_cast<int64_t>(sizeof(unsigned));
  }
};

int64_t split_scratch(const Operand& left, const Operand& right, int64_t k, int device) {
  const int64_t m = left.extent;
  const int64_t n = right.extent;
  constexpr int64_t kMostRows = int64_t{1} << 22;  // by the grids of the splitting kernels
  if (m < kFewestRows || n < kFewestRows || m > kMostRows || n > kMostRows || k > kMostRows) return 0;
  if (k == 0 || m * n < kFewestResults || m * n < kFewestProducts / k) return 0;
  if (!right.depth_runs && m < kFewestSharing && m * n / 2 < kFewestProducts / k) return 0;
  if (device_attribute(cudaDevAttrComputeCapabilityMajor, device) != 9) return 0;
  if (device_attribute(cudaDevAttrComputeCapabilityMinor, device) != 0) return 0;
  return SplitLayout(m, n, k).bytes();
}

// Splits rows along which depth runs, of one matrix or of both at once, and clears counters.
inline LaunchStatus split_by_rows(const RowsToSplit& left, const RowsToSplit& right, int64_t depth, unsigned* counters,
                                  int64_t count, cudaStream_t stream) {
  const bool in_vectors = reads_as_vectors(left.source, depth) && reads_as_vectors(right.source, depth);
  const auto kernel = in_vectors ? split_rows<4> : split_rows<1>;
  const unsigned blocks = static_cast<unsigned>(left.count + right.count);
  kernel<<<blocks, kSplitThreads, 0, stream>>>(left, right, depth, steps_of(depth), counters, count);
  return launched("split_rows");
}

// Splits rows of a matrix along which depth does not run.
inline LaunchStatus split_by_columns(const RowsToSplit& rows, int64_t depth, cudaStream_t stream) {
  if (cudaMemsetAsync(rows.magnitudes, 0, rows.count * sizeof(unsigned), stream) != cudaSuccess) {
    return launched("clearing magnitudes");
  }
  const bool in_vectors = reads_as_vectors(rows.source, rows.extent);
  const auto measure = in_vectors ? measure_columns<4> : measure_columns<1>;
  const dim3 strips(static_cast<unsigned>(ceil_div(rows.extent, in_vectors ? 128 : 32)),
                    static_cast<unsigned>(ceil_div(depth, kDepthsTogether)));
  measure<<<strips, kSplitThreads, 0, stream>>>(rows.source, rows.extent, depth, rows.magnitudes);
  const LaunchStatus status = launched("measure_columns");
  if (status.kernel != nullptr) return status;
  const auto split = in_vectors ? split_columns<4> : split_columns<1>;
  const int64_t steps = steps_of(depth);
  const dim3 grid(static_cast<unsigned>(steps), static_cast<unsigned>(rows.count / kTile));
  split<<<grid, kSplitThreads, 0, stream>>>(rows.source, rows.extent, depth, steps, rows.magnitudes, rows.tiles);
  return launched("split_columns");
}

// Splits both matrices, and clears counters where rows of either are split.
inline LaunchStatus split_operands(const Operand& left, const RowsToSplit& left_rows, const Operand& right,
                                   const RowsToSplit& right_rows, int64_t depth, unsigned* counters, int64_t count,
                                   cudaStream_t stream) {
  LaunchStatus status = {nullptr, nullptr};
  if (left.depth_runs || right.depth_runs) {
    status = split_by_rows(left.depth_runs ? left_rows : RowsToSplit{}, right.depth_runs ? right_rows : RowsToSplit{},
                           depth, counters, count, stream);
  }
  if (status.kernel == nullptr && !left.depth_runs) status = split_by_columns(left_rows, depth, stream);
  if (status.kernel == nullptr && !right.depth_runs) status = split_by_columns(right_rows, depth, stream);
  return status;
}

inline SplitOperand split_operand_of(const Operand& operand, int64_t depth, const uint8_t* tiles,
                                     const unsigned* magnitudes) {
  return {tiles, magnitudes, operand.values, operand.depth_runs ? depth : 1, operand.depth_runs ? 1 : operand.extent};
}

// Clusters that run at the same time on a device; 0 and a reason where there is none. Asked for once: the first kernels
// of a product are short, so the GPU waits for a host that is slow.
inline cudaError_t clusters_at_once(int device, int& clusters) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  clusters = device >= 0 && device < kDevices ? known[device].load() : 0;
  if (clusters > 0) return cudaSuccess;
  cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(multiply_split),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kMultiplyShared);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kCluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = device_attribute(cudaDevAttrMultiProcessorCount, device) / kCluster * kCluster;
  config.blockDim = kMultiplyThreads;
  config.dynamicSmemBytes = kMultiplyShared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaOccupancyMaxActiveClusters(&clusters, multiply_split, &config);
  if (error == cudaSuccess && device >= 0 && device < kDevices) known[device].store(clusters);
  return error;
}

// Whether rows of the right matrix may be split while the product runs: it has to last long enough for each of them.
inline bool splits_beside(const Operand& right, int64_t k, int64_t m) {
  constexpr int64_t kLongEnough = 1024;
  return m >= kLongEnough && right.depth_runs && reads_as_vectors(right.values, k);
}

// Rows of the right matrix that the first tiles of all clusters need.
inline int64_t rows_at_first(int clusters, int64_t clusters_m) {
  return ceil_div(clusters, clusters_m < kBand ? clusters_m : kBand) * kClusterN * kTile;
}

LaunchStatus launch_split_product(const Operand& left, const Operand& right, int64_t k, float* target, uint8_t* scratch,
                                  int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t m = left.extent;
  const int64_t n = right.extent;
  const SplitLayout layout(m, n, k);
  uint8_t* const left_tiles = scratch;
  uint8_t* const right_tiles = left_tiles + layout.bytes_of(layout.rows_left);
  unsigned* const left_magnitudes = reinterpret_cast<unsigned*>(right_tiles + layout.bytes_of(layout.rows_right));
  unsigned* const right_magnitudes = left_magnitudes + layout.rows_left;
  unsigned* const counters = right_magnitudes + layout.rows_right;
  int clusters = 0;
  const cudaError_t error = clusters_at_once(device, clusters);
  if (error != cudaSuccess || clusters == 0) {
    cudaGetLastError();
    return {"multiply_split", error != cudaSuccess ? cudaGetErrorString(error) : "no cluster of blocks fits a device"};
  }
  const int64_t clusters_m = layout.rows_left / (kTile * kClusterM);
  const int64_t at_first = splits_beside(right, k, m) ? rows_at_first(clusters, clusters_m) : layout.rows_right;
  const int64_t before = at_first < layout.rows_right ? at_first : layout.rows_right;
  const RowsToSplit left_rows = {left.values, m, layout.rows_left, left_magnitudes, left_tiles};
  const RowsToSplit right_rows = {right.values, n, before, right_magnitudes, right_tiles};
  const LaunchStatus status =
      split_operands(left, left_rows, right, right_rows, k, counters, layout.counters(), stream);
  if (status.kernel != nullptr) return status;
  const LaterRows later = {static_cast<int>(before), static_cast<int>(layout.rows_right),
                           counters,                 counters + 1,
                           right_magnitudes,         right_tiles};
  const SplitProduct product = {split_operand_of(left, k, left_tiles, left_magnitudes),
                                split_operand_of(right, k, right_tiles, right_magnitudes),
                                m,
                                n,
                                k,
                                static_cast<int>(layout.steps),
                                static_cast<int>(clusters_m),
                                static_cast<int>(layout.rows_right / (kTile * kClusterN)),
                                later};
  const int64_t items = int64_t{product.clusters_m} * product.clusters_n;
  const unsigned blocks = static_cast<unsigned>(items < clusters ? items : clusters) * kCluster;
  multiply_split<<<blocks, kMultiplyThreads, kMultiplyShared, stream>>>(product, target);
  return launched("multiply_split");
}

#else  // no tensor cores of compute capability 9.0
int64_t split_scratch(const Operand& /*left*/, const Operand& /*right*/, int64_t /*k*/, int /*device*/) { return 0; }

LaunchStatus launch_split_product(const Operand& /*left*/, const Operand& /*right*/, int64_t /*k*/, float* /*target*/,
                                  uint8_t* /*scratch*/, int /*device*/, void* /*stream*/) {
  return {"multiply_split", "it was not compiled"};
}
#endif

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

// A matrix (rows, columns), either of whose sides may run along memory.
inline Operand operand_of(const Tensor& tensor, const Tensor& left, int64_t depth_side, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == torch::headeronly::ScalarType::Float && tensor.dim() == 2, name,
                  " must be float32 with 2 dimensions");
  STD_TORCH_CHECK(tensor.get_device_index() == left.get_device_index(), name, " must be on the device of the other");
  const int64_t extent_side = 1 - depth_side;
  const int64_t extent = tensor.size(extent_side);
  const int64_t depth = tensor.size(depth_side);
  const bool depth_runs = tensor.stride(depth_side) == 1 && tensor.stride(extent_side) == depth;
  STD_TORCH_CHECK(depth_runs || (tensor.stride(extent_side) == 1 && tensor.stride(depth_side) == extent), name,
                  " must be contiguous, or transposed so");
  return {input_floats(tensor), extent, depth_runs};
}

// left (m, k) times right (k, n) by halves on tensor cores; nothing where that is not what suits.
inline std::optional<Tensor> multiply(const Tensor& left, const Tensor& right) {
  const Operand rows = operand_of(left, left, 1, "the left matrix");
  const Operand columns = operand_of(right, left, 0, "the right matrix");
  const int64_t depth = left.size(1);
  STD_TORCH_CHECK(right.size(0) == depth, "the right matrix must have ", depth, " rows, got ", right.size(0));
  const int64_t bytes = split_scratch(rows, columns, depth, left.get_device_index());
  if (bytes == 0) return std::nullopt;
  Tensor product = torch::stable::new_empty(left, {rows.extent, columns.extent});
  Tensor scratch = torch::stable::new_empty(left, {bytes}, torch::headeronly::ScalarType::Byte);
  check_launch(launch_split_product(rows, columns, depth, output_floats(product),
                                    static_cast<uint8_t*>(scratch.data_ptr()), left.get_device_index(),
                                    current_stream(left)));
  return product;
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
  m.def("multiply(Tensor left, Tensor right) -> Tensor?");
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
  m.impl("multiply", TORCH_BOX(&OP_NAMESPACE::multiply));
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


def multiply(left, right):
    """Return the product of two matrices, each contiguous or transposed."""
    product = OPERATORS.multiply(left, right)
    return torch.mm(left, right) if product is None else product


OPERATORS = build_operators(
    "gemm_bias_add_hardtanh_mish_group_norm", LAUNCHERS, CUDA_SOURCE, BINDING_SOURCE, flags_of_sm_90a()
)


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
        dx = multiply(dz, weight) if wants_x else None
        dweight = multiply(dz.t(), x) if wants_weight else None
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
        product = multiply(x.detach(), weight.detach().t())
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

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

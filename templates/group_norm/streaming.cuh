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

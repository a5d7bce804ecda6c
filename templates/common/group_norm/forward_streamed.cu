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

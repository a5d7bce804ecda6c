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

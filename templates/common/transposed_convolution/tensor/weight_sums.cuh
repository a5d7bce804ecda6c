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

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

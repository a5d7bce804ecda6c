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

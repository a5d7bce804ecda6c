// A convolution as a correlation along one line of pixels: the rows of an image follow each other, `pitch` apart, with
// zeros behind each, so that
//     target[q] = sum over taps t of source[q - shift(t)] * w(t),    shift = tap_y * pitch + tap_x,
// for all pixels q. The gradient of the input is the same with the taps backwards and q counted from `farthest` on.
//
// Every multiprocessor has one block, which walks along a stretch of all samples' pixels in steps of kSlot. Four warps
// bring the source into a ring of shared memory, as halves; three warpgroups take turns, one multiplies while others
// write out their steps. All taps read the same ring, each at its own shift. The ring's first pixels lie behind its end
// once more, so that kSlot pixels from any place on follow each other. Slots count the pixels a block has brought: in
// front of a stretch are `lead` of them that only taps reach.

constexpr int kSlot = 128;     // pixels of a step
constexpr int kGranule = 32;  // of these, a warp's
constexpr int kMirroredGranules = kSlot / kGranule;
constexpr int kSlotBarriers = 16;
constexpr int kCopyWarps = kSlot / kGranule;
constexpr int kMultiplyGroups = 3;  // warpgroups
constexpr int kCorrelateThreads = 128 * (1 + kMultiplyGroups);

enum class Pass {
  kForward,  // from x, as it is
  kRescue,   // the same for samples that fp16 lost, scaled
  kGradient  // from the halves of z's gradient
};

// The ring of a pass.
template <Pass kPass>
struct Ring {
  static constexpr int kGranules = kPass == Pass::kGradient ? 34 : 26;
  static constexpr int kPixels = kGranules * kGranule;
  static constexpr int kPlane = (kPixels + kSlot) * kEightBytes;  // from an eight of channels to the next
  static constexpr int kBytes = kEights * kPlane;
  static constexpr int kFarthest = kPixels - 2 * kSlot;  // taps beyond would leave no room ahead
};

// Where steps of z wait for their way to memory: rows of channels, at distances that spread over all banks.
constexpr int kStagedRow = (kSlot + 8) * 4;
constexpr int kStaged = kMostChannels * kStagedRow;

template <Pass kPass>
constexpr int kCorrelateShared = kMostTaps * kTapBytes + Ring<kPass>::kBytes + (kPass == Pass::kGradient ? 0 : kStaged);

struct Correlation {
  int64_t samples;
  int sources;  // channels
  int targets;
  int kernel_y;
  int kernel_x;
  int pitch;
  unsigned inverse_pitch;  // 2^32 / pitch, rounded up
  int farthest;            // shift
  int lead;
  int steps;  // of a sample
  const uint8_t* weights;
  const int* weight_exponents;
  const float* x;
  const uint8_t* planes;  // (samples, eights, plane, eight)
  int plane;              // pixels
  unsigned* magnitudes;   // of samples
  const int* exponents;   // of samples
  int height;             // of x and of its gradient
  int width;
  const float* bias;
  float* target;
  int64_t target_plane;
  int64_t target_pitch;  // from a plane to the next, in memory
  Moments* moments;  // (samples, targets, parts)
  int parts;
};

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void bulk_load(uint8_t* to, const uint8_t* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// Core matrices follow each other along pixels (or channels of the target) and are `next_eight` apart along the depth.
__device__ __forceinline__ uint64_t eights_descriptor(uint32_t address, int next_eight) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | static_cast<uint64_t>(next_eight / 16) << 16 | 8ull << 32;
}

// The same where the depth is the pixels, which run along memory; eights are `next_eight` apart.
__device__ __forceinline__ uint64_t pixels_descriptor(uint32_t address, int next_eight) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | 8ull << 16 | static_cast<uint64_t>(next_eight / 16) << 32;
}

struct SlotBarriers {
  uint64_t full[kSlotBarriers];
  uint64_t done[kSlotBarriers];
  uint64_t stored[kSlotBarriers];  // by the count of steps
  uint64_t weights;
};

__device__ __forceinline__ void await_slot(uint64_t* barriers, int slot) {
  barrier_wait(barriers + slot % kSlotBarriers, slot / kSlotBarriers & 1);
}

// A stretch of a sample's steps, by one block.
struct Stretch {
  int64_t sample;
  int first;
  int count;
};

// The stretches of this block, one after another.
template <Pass kPass>
struct Stretches {
  const Correlation& correlation;
  int64_t step;
  int64_t end;

  __device__ explicit Stretches(const Correlation& c) : correlation(c) {
    const int64_t steps = c.samples * c.steps;
    step = steps * blockIdx.x / gridDim.x;
    end = steps * (blockIdx.x + 1) / gridDim.x;
  }

  __device__ bool next(Stretch& stretch) {
    while (step < end) {
      stretch.sample = step / correlation.steps;
      stretch.first = static_cast<int>(step - stretch.sample * correlation.steps);
      const int64_t left = end - step;
      const int of_sample = correlation.steps - stretch.first;
      stretch.count = left < of_sample ? static_cast<int>(left) : of_sample;
      step += stretch.count;
      if (kPass != Pass::kRescue || is_out_of_range(correlation.magnitudes[stretch.sample])) return true;
    }
    return false;
  }
};

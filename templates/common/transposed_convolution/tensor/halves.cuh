// fp16 operands of tensor cores, scaled by powers of two, and where they lie: eight channels of a pixel are 16 bytes,
// an "eight"; the eights of neighbouring pixels follow each other. Eight eights are a core matrix of wgmma without
// swizzle, so that a tap of the convolution is a shift of the address by 16 bytes times the pixels.

constexpr int kMostChannels = 64;
constexpr int kEight = 8;
constexpr int kEightBytes = 16;
constexpr int kEights = kMostChannels / kEight;
constexpr int kTapBytes = kMostChannels * kMostChannels * 2;
constexpr int kMostTaps = 9;

constexpr unsigned kInfinity = 0x7f800000u;  // bits; more are NaN

// The exponent of a scale: the largest value, whose bits without the sign are `magnitude`, comes to lie between 2^14
// and 2^15. What is infinite or NaN stays so.
__device__ inline int scale_exponent(unsigned magnitude) {
  const int exponent = 14 + 127 - static_cast<int>(magnitude >> 23);
  return magnitude >= kInfinity ? 0 : (exponent < 126 ? exponent : 126);
}

__device__ inline float scale_of(int exponent) { return __int_as_float((127 + exponent) << 23); }

// value / 2^exponent in two steps, either of which is a normal float.
__device__ inline float unscaled(float value, int exponent) {
  const int half = exponent / 2;
  return value * scale_of(-half) * scale_of(half - exponent);
}

__device__ inline uint32_t pair_of_halves(float first, float second) {
  const __half2 rounded = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&rounded);
}

__device__ inline uint4 eight_halves(const float (&values)[kEight]) {
  return make_uint4(pair_of_halves(values[0], values[1]), pair_of_halves(values[2], values[3]),
                    pair_of_halves(values[4], values[5]), pair_of_halves(values[6], values[7]));
}

// Whether fp16 would lose a sample's values: x is converted as it is, in the hope that it does not.
__device__ inline bool is_out_of_range(unsigned magnitude) {
  constexpr unsigned kLargest = 0x477fe000u;   // 65504
  constexpr unsigned kSmallest = 0x3b000000u;  // 2^-9
  return magnitude < kInfinity && (magnitude > kLargest || (magnitude < kSmallest && magnitude != 0));
}

__device__ inline int sample_exponent(unsigned magnitude) {
  return is_out_of_range(magnitude) ? scale_exponent(magnitude) : 0;
}

// Which weights are multiplied: those of target channel m, source channel k and tap t lie at
// m * of_target + k * of_source + t, or backwards from the last tap.
struct Taps {
  const float* weights;
  int64_t of_target;
  int64_t of_source;
  int count;
  int sources;
  int targets;
  bool backwards;
};

// Grid (kMostChannels): a target channel's halves, as (tap, eight of the source, target, source), and their exponent.
__global__ void __launch_bounds__(128) prepare_weights(Taps taps, uint8_t* halves, int* exponents) {
  __shared__ unsigned warps[4];
  const int target = static_cast<int>(blockIdx.x);
  const int wanted = target < taps.targets ? taps.count * kEights : 0;
  const float* const weights = taps.weights + target * taps.of_target;
  unsigned largest = 0;
  for (int i = threadIdx.x; i < wanted; i += blockDim.x) {
    for (int k = i / taps.count * kEight; k < (i / taps.count + 1) * kEight && k < taps.sources; ++k) {
      largest = max(largest, __float_as_uint(weights[k * taps.of_source + i % taps.count]) & 0x7fffffffu);
    }
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (threadIdx.x % kWarpSize == 0) warps[threadIdx.x / kWarpSize] = largest;
  __syncthreads();
  largest = max(max(warps[0], warps[1]), max(warps[2], warps[3]));
  const int exponent = scale_exponent(largest);
  const float scale = scale_of(exponent);
  for (int i = threadIdx.x; i < taps.count * kEights; i += blockDim.x) {
    const int tap = i / kEights;
    const int from = taps.backwards ? taps.count - 1 - tap : tap;
    float values[kEight];
#pragma unroll
    for (int j = 0; j < kEight; ++j) {
      const int k = i % kEights * kEight + j;
      values[j] = target < taps.targets && k < taps.sources ? weights[k * taps.of_source + from] * scale : 0.0f;
    }
    *reinterpret_cast<uint4*>(halves + (int64_t{i} * kMostChannels + target) * kEightBytes) = eight_halves(values);
  }
  if (threadIdx.x == 0) exponents[target] = exponent;
}

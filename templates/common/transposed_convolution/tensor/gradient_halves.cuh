// The gradient of z as halves, for both products of the backward: (phases, samples, eights, plane, eight), one power of
// two a sample. Rows are `pitch` apart; what lies beside the image is 0.

constexpr int kHalvesThreads = 256;
constexpr int kPixelsOfThread = 4;
constexpr int kHalvesTile = kHalvesThreads * kPixelsOfThread;

struct GradientHalves {
  const float* dy;
  const float* z;
  int64_t pitch_of_z;   // from a plane to the next
  const float* weight;  // of the group norm
  const float* mean;
  const float* rstd;
  const GroupMeans* means;
  int64_t channels;
  int64_t groups;
  int height;  // of dy
  int width;
  int pitch;
  unsigned inverse_pitch;
  int plane;
  int* exponents;  // of samples
  uint8_t* halves;
  float* sums;  // of the gradient, (samples, channels, tiles)
  int stride_y;
};

// A pixel of a thread, and where it lies in dy. With strides two neighbours of dy lie in two lines, so that the tiles of
// a py go twice along its lines.
template <bool kStrided>
struct HalvesPixel {
  int phase = 0;
  int pixel;  // of the phase's line
  int row;
  int column;

  __device__ HalvesPixel(const GradientHalves& g, int i) {
    const int of_tile = i * kHalvesThreads + static_cast<int>(threadIdx.x);
    if constexpr (!kStrided) {
      pixel = static_cast<int>(blockIdx.x) * kHalvesTile + of_tile;
      row = static_cast<int>(__umulhi(pixel, g.inverse_pitch));
      column = pixel - row * g.pitch;
    } else {
      const int tiles = static_cast<int>(gridDim.x) / g.stride_y;
      const int py = static_cast<int>(blockIdx.x) / tiles;
      const int px = of_tile % kStride;
      pixel = (static_cast<int>(blockIdx.x) % tiles * kHalvesTile + of_tile) / kStride;
      phase = py * kStride + px;
      row = static_cast<int>(__umulhi(pixel, g.inverse_pitch));
      column = (pixel - row * g.pitch) * kStride + px;
      row = row * g.stride_y + py;
    }
  }
};

// The exponent of a sample's scale: no group's gradient exceeds its bound.
__device__ inline int gradient_exponent(const GradientHalves& g, int64_t sample) {
  float largest = 0.0f;
  for (int64_t group = 0; group < g.groups; ++group) {
    const float bound = g.means[sample * g.groups + group].bound;
    largest = bound <= largest ? largest : bound;  // NaN stays
  }
  return scale_exponent(__float_as_uint(largest));
}

// Grid (tiles, eights, samples).
template <bool kStrided>
__global__ void __launch_bounds__(kHalvesThreads, 3)
    gradient_halves(const __grid_constant__ GradientHalves g, Shift shift) {
  __shared__ float warp_sums[kHalvesThreads / kWarpSize][kEight];
  __shared__ InputGradient of_channel[kEight];
  __shared__ int exponent_of_sample;
  const int64_t sample = blockIdx.z;
  const int64_t first_channel = int64_t{blockIdx.y} * kEight;
  if (threadIdx.x == 0) {
    exponent_of_sample = gradient_exponent(g, sample);
    if (blockIdx.x == 0 && blockIdx.y == 0) g.exponents[sample] = exponent_of_sample;
  }
  if (threadIdx.x < kEight && first_channel + threadIdx.x < g.channels) {
    const int64_t channel = first_channel + threadIdx.x;
    const int64_t group = sample * g.groups + channel / (g.channels / g.groups);
    of_channel[threadIdx.x] = {activate_of(shift, channel), g.mean[group],     g.rstd[group],
                               g.weight[channel],           g.means[group].dy, g.means[group].dy_xhat};
  }
  __syncthreads();
  const float scale = scale_of(exponent_of_sample);
  const int64_t plane = static_cast<int64_t>(g.height) * g.width;
  int offsets[kPixelsOfThread];  // in an image; -1 beside it
#pragma unroll
  for (int j = 0; j < kPixelsOfThread; ++j) {
    const HalvesPixel<kStrided> at(g, j);
    offsets[j] = at.row < g.height && at.column < g.width ? at.row * g.width + at.column : -1;
  }
  float halves[kPixelsOfThread][kEight];
  float sums[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const int64_t channel = first_channel + i;
    sums[i] = 0.0f;
#pragma unroll
    for (int j = 0; j < kPixelsOfThread; ++j) halves[j][i] = 0.0f;
    if (channel >= g.channels) continue;
    const InputGradient gradient = of_channel[i];
    const float* const dy = g.dy + (sample * g.channels + channel) * plane;
    const float* const z = g.z + (sample * g.channels + channel) * g.pitch_of_z;
#pragma unroll
    for (int j = 0; j < kPixelsOfThread; ++j) {
      const int at = offsets[j] < 0 ? 0 : offsets[j];
      const float value = gradient(dy[at], z[at]);
      if (offsets[j] >= 0) {
        sums[i] += value;
        halves[j][i] = value * scale;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kPixelsOfThread; ++j) {
    const HalvesPixel<kStrided> at(g, j);
    const int64_t line = ((kStrided ? at.phase * int64_t{gridDim.z} : 0) + sample) * gridDim.y + blockIdx.y;
    uint8_t* const to = g.halves + line * static_cast<int64_t>(g.plane) * kEightBytes;
    if (at.pixel < g.plane) reinterpret_cast<uint4*>(to)[at.pixel] = eight_halves(halves[j]);
  }
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      sums[i] += __shfl_down_sync(kAllLanes, sums[i], offset);
    }
    if (threadIdx.x % kWarpSize == 0) warp_sums[threadIdx.x / kWarpSize][i] = sums[i];
  }
  __syncthreads();
  const int64_t channel = first_channel + threadIdx.x;
  if (threadIdx.x < kEight && channel < g.channels) {
    float sum = 0.0f;
    for (int warp = 0; warp < kHalvesThreads / kWarpSize; ++warp) sum += warp_sums[warp][threadIdx.x];
    g.sums[(sample * g.channels + channel) * gridDim.x + blockIdx.x] = sum;
  }
}

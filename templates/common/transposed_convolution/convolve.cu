// The kernel: steps through shared memory, two buffers in turn, sums in registers.

// Pixels beyond a tile that a row of taps meets.
template <int kTaps>
constexpr int kHalo = kTaps - 1;

// Pixels that a row of taps at four pixels meets, in fours.
template <int kTaps>
constexpr int kWindow = 4 + (kHalo<kTaps> + 3) / 4 * 4;

// A step in shared memory.
template <int kTaps>
struct Buffer {
  float pixels[kDepth][kBlockPixels + kWindow<kTaps> - 4];
  float weights[kTaps][kDepth][kBlockChannels];
};

// This thread's pixels of the grid that a step's taps reach: one of the tile's, and one beyond them.
struct Reach {
  Place own;
  Place beyond;
};

// One thread's share of a step's pixels, on their way to shared memory.
template <int kTaps>
struct FetchedPixels {
  float own[kPixelFetches];
  float beyond;
};

// `image` is the sample's first channel of the source.
template <int kTaps, bool kToFine>
__device__ inline void fetch(const float* image, const Convolution& convolution, const Step& step, const Reach& reach,
                             FetchedPixels<kTaps>& fetched) {
  const int channels = kToFine ? convolution.coarse_channels : convolution.fine_channels;
  const int64_t plane = source_plane<kToFine>(convolution);
  const int offset = source_offset<kToFine>(convolution, step, reach.own);
  const int first = step.channel + static_cast<int>(threadIdx.x / kBlockPixels);
  const int left = offset >= 0 ? channels - first : 0;  // channels that there are
  const float* pixel = image + (first * plane + offset);
#pragma unroll
  for (int i = 0; i < kPixelFetches; ++i) {
    fetched.own[i] = i * kMembersAtOnce < left ? *pixel : 0.0f;
    pixel += kMembersAtOnce * plane;
  }
  if constexpr (kTaps > 1) {
    const int member = static_cast<int>(threadIdx.x / kHalo<kTaps>);
    const int beyond = source_offset<kToFine>(convolution, step, reach.beyond);
    const bool is_wanted = member < kDepth && step.channel + member < channels && beyond >= 0;
    fetched.beyond = is_wanted ? image[(step.channel + member) * plane + beyond] : 0.0f;
  }
}

template <int kTaps>
__device__ inline void store(const FetchedPixels<kTaps>& fetched, Buffer<kTaps>& buffer) {
#pragma unroll
  for (int i = 0; i < kPixelFetches; ++i) {
    buffer.pixels[threadIdx.x / kBlockPixels + i * kMembersAtOnce][threadIdx.x % kBlockPixels] = fetched.own[i];
  }
  if constexpr (kTaps > 1) {
    const int member = static_cast<int>(threadIdx.x / kHalo<kTaps>);
    if (member < kDepth) buffer.pixels[member][kBlockPixels + threadIdx.x % kHalo<kTaps>] = fetched.beyond;
  }
}

// One thread's share of a step's weights.
template <int kTaps>
struct FetchedWeights {
  float values[kTaps][kRowFetches];
};

template <int kTaps, bool kToFine>
__device__ inline void fetch(const float* taps, const Convolution& convolution, const Step& step, int first_channel,
                             FetchedWeights<kTaps>& fetched) {
  const int channels = kToFine ? convolution.coarse_channels : convolution.fine_channels;
  const int targets = kToFine ? convolution.fine_channels : convolution.coarse_channels;
  const int first = step.channel + static_cast<int>(threadIdx.x / kBlockChannels);
  const int target = first_channel + static_cast<int>(threadIdx.x % kBlockChannels);
  const int left = target < targets ? channels - first : 0;  // channels that there are
  const int tap_y = kToFine ? step.row : convolution.y.most - 1 - step.row;
  const int tap_x = kToFine ? step.tap : convolution.x.most - 1 - step.tap;
  const int64_t row = static_cast<int64_t>(step.phase_y + convolution.y.stride * tap_y) * convolution.x.kernel +
                      step.phase_x + convolution.x.stride * tap_x;
  const int64_t next_tap = static_cast<int64_t>(kToFine ? channels : -channels) * convolution.x.stride * targets;
  const int64_t next_row = static_cast<int64_t>(kRowsAtOnce) * targets;
  const float* weight = taps + ((row * channels + first) * targets + target);
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
    for (int i = 0; i < kRowFetches; ++i) {
      fetched.values[tap][i] = i * kRowsAtOnce < left ? weight[i * next_row] : 0.0f;
    }
    weight += next_tap;
  }
}

template <int kTaps>
__device__ inline void store(const FetchedWeights<kTaps>& fetched, Buffer<kTaps>& buffer) {
#pragma unroll
  for (int i = 0; i < kRowFetches; ++i) {
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      buffer.weights[tap][threadIdx.x / kBlockChannels + i * kRowsAtOnce][threadIdx.x % kBlockChannels] =
          fetched.values[tap][i];
    }
  }
}

// sums += what half the channels of a step add, from one of them on, to this thread's channels and pixels.
template <int kTaps>
__device__ inline void multiply(const Buffer<kTaps>& buffer, int first_member,
                                float (&sums)[kThreadChannels][kThreadPixels]) {
  const int first_pixel = threadIdx.x % kPixelThreads * 4;
  const int first_channel = threadIdx.x / kPixelThreads * kThreadChannels;
#pragma unroll 2
  for (int member = first_member; member < first_member + kDepth / 2; ++member) {
    float window[kPixelGroups][kWindow<kTaps>];
#pragma unroll
    for (int group = 0; group < kPixelGroups; ++group) {
#pragma unroll
      for (int i = 0; i < kWindow<kTaps>; i += 4) {
        load_vector<4>(&buffer.pixels[member][group * kGroupPixels + first_pixel + i], &window[group][i]);
      }
    }
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      float weights[kThreadChannels];
#pragma unroll
      for (int i = 0; i < kThreadChannels; i += 4) {
        load_vector<4>(&buffer.weights[tap][member][first_channel + i], &weights[i]);
      }
#pragma unroll
      for (int i = 0; i < kThreadChannels; ++i) {
#pragma unroll
        for (int pixel = 0; pixel < kThreadPixels; ++pixel) {
          sums[i][pixel] += weights[i] * window[pixel / 4][pixel % 4 + kHalo<kTaps> - tap];
        }
      }
    }
  }
}

// This thread's pixel of a tile, on the grid.
__device__ inline int grid_pixel(const Tile& tile, int pixel) {
  return tile.first + pixel / 4 * kGroupPixels + static_cast<int>(threadIdx.x % kPixelThreads) * 4 + pixel % 4;
}

__device__ inline void add_bias(const float* bias, const Convolution& convolution, const Tile& tile,
                                float (&sums)[kThreadChannels][kThreadPixels]) {
  const int first_channel = tile.first_channel + static_cast<int>(threadIdx.x / kPixelThreads) * kThreadChannels;
#pragma unroll
  for (int i = 0; i < kThreadChannels; ++i) {
    const float shift = first_channel + i < convolution.fine_channels ? bias[first_channel + i] : 0.0f;
#pragma unroll
    for (int pixel = 0; pixel < kThreadPixels; ++pixel) sums[i][pixel] += shift;
  }
}

template <bool kToFine>
__device__ inline void write_pixels(const float (&values)[kThreadChannels][kThreadPixels],
                                    const Convolution& convolution, const Tile& tile, bool in_fours, float* target) {
  const int channels = kToFine ? convolution.fine_channels : convolution.coarse_channels;
  const int64_t plane = target_plane<kToFine>(convolution);
  const int first_channel = tile.first_channel + static_cast<int>(threadIdx.x / kPixelThreads) * kThreadChannels;
  float* image = target + (tile.sample * channels + first_channel) * plane;
#pragma unroll
  for (int pixel = 0; pixel < kThreadPixels; ++pixel) {
    if (in_fours && pixel % 4 != 0) continue;
    const int offset = target_offset<kToFine>(convolution, tile, grid_pixel(tile, pixel));
    if (offset < 0) continue;
#pragma unroll
    for (int i = 0; i < kThreadChannels; ++i) {
      if (first_channel + i >= channels) continue;
      if (in_fours) {
        store_vector<4>(image + i * plane + offset, &values[i][pixel / 4 * 4]);
      } else {
        image[i * plane + offset] = values[i][pixel];
      }
    }
  }
}

// The moments of what is normalised over this warp's pixels, of each of its channels.
__device__ inline void gather_moments(const float (&values)[kThreadChannels][kThreadPixels],
                                      const Convolution& convolution, const Tile& tile, Moments* moments) {
  const int first_channel = tile.first_channel + static_cast<int>(threadIdx.x / kPixelThreads) * kThreadChannels;
  const int64_t parts = phases_of<true>(convolution) * tiles_of_grid<true>(convolution) * kPixelWarps;
  const int64_t part = tile.part * kPixelWarps + threadIdx.x % kPixelThreads / kWarpSize;
  const Activate activate;
  float count = 0.0f;
#pragma unroll
  for (int pixel = 0; pixel < kThreadPixels; ++pixel) count += grid_pixel(tile, pixel) < tile.end ? 1.0f : 0.0f;
#pragma unroll
  for (int i = 0; i < kThreadChannels; ++i) {
    if (first_channel + i >= convolution.fine_channels) break;  // for the whole warp
    float activated[kThreadPixels];
    float sum = 0.0f;
#pragma unroll
    for (int pixel = 0; pixel < kThreadPixels; ++pixel) {
      activated[pixel] = activate(values[i][pixel]);
      sum += grid_pixel(tile, pixel) < tile.end ? activated[pixel] : 0.0f;
    }
    Moments share = {count, count > 0.0f ? sum / count : 0.0f, 0.0f};
#pragma unroll
    for (int pixel = 0; pixel < kThreadPixels; ++pixel) {
      const float deviation = activated[pixel] - share.mean;
      share.m2 += grid_pixel(tile, pixel) < tile.end ? deviation * deviation : 0.0f;
    }
    share = warp_reduce(share, MergeMoments());
    if (threadIdx.x % kWarpSize == 0) {
      moments[(tile.sample * convolution.fine_channels + first_channel + i) * parts + part] = share;
    }
  }
}

// Grid (samples * phases * tiles of pixels * tiles of channels). `in_fours`: the target takes four pixels at a time.
// `moments` of what is normalised, where they are gathered: (samples, channels, phases * tiles of pixels *
// kPixelWarps).
template <int kTaps, bool kToFine>
__global__ void __launch_bounds__(kConvolutionThreads, kConvolutionBlocks)
    convolve(const float* __restrict__ source, const float* __restrict__ taps, const float* __restrict__ bias,
             Convolution convolution, int64_t items, bool in_fours, float* __restrict__ target,
             Moments* __restrict__ moments) {
  __shared__ __align__(16) Buffer<kTaps> buffers[2];
  __shared__ Tile tile;  // not in registers, which the sums want
  const int source_channels = kToFine ? convolution.coarse_channels : convolution.fine_channels;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    __syncthreads();  // the tile before has been read, and both buffers
    if (threadIdx.x == 0) tile = tile_of<kToFine>(convolution, item);
    __syncthreads();
    float sums[kThreadChannels][kThreadPixels] = {};
    if (has_taps(convolution, tile)) {
      const float* image = source + tile.sample * source_channels * source_plane<kToFine>(convolution);
      const int first = tile.first - kHalo<kTaps>;
      const int turn_of_halo = static_cast<int>(threadIdx.x % (kTaps > 1 ? kHalo<kTaps> : 1));
      const Reach reach = {place_of(first + static_cast<int>(threadIdx.x % kBlockPixels), tile.columns),
                           place_of(first + kBlockPixels + turn_of_halo, tile.columns)};
      Step step = first_step<kToFine>(convolution, tile);
      FetchedPixels<kTaps> pixels;
      FetchedWeights<kTaps> weights;
      fetch<kTaps, kToFine>(image, convolution, step, reach, pixels);
      store(pixels, buffers[0]);
      fetch<kTaps, kToFine>(taps, convolution, step, tile.first_channel, weights);
      bool goes_on = true;
      for (int turn = 0; goes_on; turn ^= 1) {
        store(weights, buffers[turn]);
        __syncthreads();
        goes_on = advance<kTaps, kToFine>(convolution, step);
        if (goes_on) fetch<kTaps, kToFine>(image, convolution, step, reach, pixels);
        multiply(buffers[turn], 0, sums);
        if (goes_on) {
          store(pixels, buffers[turn ^ 1]);
          fetch<kTaps, kToFine>(taps, convolution, step, tile.first_channel, weights);
        }
        multiply(buffers[turn], kDepth / 2, sums);
      }
    }
    if constexpr (kToFine) add_bias(bias, convolution, tile, sums);
    write_pixels<kToFine>(sums, convolution, tile, in_fours, target);
    if constexpr (kToFine && kGathersMoments) gather_moments(sums, convolution, tile, moments);
  }
}

template <bool kToFine>
int64_t items_of(const Convolution& convolution) {
  return convolution.samples * phases_of<kToFine>(convolution) * tiles_of_grid<kToFine>(convolution) *
         channel_tiles<kToFine>(convolution);
}

// Whether every phase that has taps along an axis has a multiple of so many.
inline bool divides_taps(const Axis& axis, int taps) { return axis.kernel % axis.stride == 0 && axis.most % taps == 0; }

template <bool kToFine>
LaunchStatus launch_convolve(const float* source, const float* taps, const float* bias, const Convolution& convolution,
                             bool in_fours, float* target, Moments* moments, int device, void* stream_handle) {
  const int64_t items = items_of<kToFine>(convolution);
  if (items == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned blocks = grid_for(items);
  if (divides_taps(convolution.x, 3)) {
    convolve<3, kToFine>
        <<<blocks, kConvolutionThreads, 0, stream>>>(source, taps, bias, convolution, items, in_fours, target, moments);
  } else {
    convolve<1, kToFine>
        <<<blocks, kConvolutionThreads, 0, stream>>>(source, taps, bias, convolution, items, in_fours, target, moments);
  }
  return launched("convolve");
}

int64_t moments_of_channel(const Convolution& convolution) {
  return phases_of<true>(convolution) * tiles_of_grid<true>(convolution) * kPixelWarps;
}

LaunchStatus launch_to_fine(const float* coarse, const float* taps, const float* bias, const Convolution& convolution,
                            float* fine, float* moments, int device, void* stream) {
  const bool in_fours =
      convolution.y.stride == 1 && convolution.x.stride == 1 && reads_as_vectors(fine, convolution.fine_plane);
  return launch_convolve<true>(coarse, taps, bias, convolution, in_fours, fine, reinterpret_cast<Moments*>(moments),
                               device, stream);
}

LaunchStatus launch_to_coarse(const float* fine, const float* taps, const Convolution& convolution, float* coarse,
                              int device, void* stream) {
  return launch_convolve<false>(fine, taps, nullptr, convolution, false, coarse, nullptr, device, stream);
}

// One axis of a transposed convolution without padding: coarse pixel i and tap k meet at fine pixel i * stride + k.
struct Axis {
  int coarse;  // pixels
  int fine;    // (coarse - 1) * stride + kernel
  int kernel;  // taps
  int stride;
  int most;  // taps that meet at one fine pixel: kernel / stride, rounded up
};

// Its images: coarse ones (samples, coarse_channels, y.coarse, x.coarse), which it reads, and fine ones alike, which it
// writes; all contiguous. Weights are (coarse_channels, fine_channels, y.kernel, x.kernel).
struct Convolution {
  int64_t samples;
  int coarse_channels, fine_channels;
  Axis y;
  Axis x;
  int coarse_plane;  // pixels of an image
  int fine_plane;
};

// A transposed convolution and the gradient of its input by one kernel. Along an axis the fine pixels phase, phase +
// stride, ... form a lattice, which every stride-th tap reaches, taps_of(phase) in number. On a lattice
//     fine[q] = bias + sum over j of coarse[q - j] * w[phase + stride * j],
//     dcoarse[i] = sum over phases and j of dfine[i + j] * w[phase + stride * j].
// Both are target[q] = sum over t of source[q - t] * w(t): the first with t = j, the second with q = i + most - 1 and
// t = most - 1 - j, where most = taps_of(0), the largest number. So much for a grid of pixels q.
//
// A block computes kBlockChannels channels of kBlockPixels pixels that follow each other on the grid, row after row.
// The grid's rows are so long that a tap which leaves a row meets the end of the row before, where the source has
// nothing: a row of taps then slides along one stretch of pixels, whatever the width of the image.

__host__ __device__ inline int taps_of(const Axis& axis, int phase) {
  return phase < axis.kernel ? (axis.kernel - phase + axis.stride - 1) / axis.stride : 0;
}

__host__ __device__ inline int lattice_of(const Axis& axis, int phase) {
  return phase < axis.fine ? (axis.fine - phase + axis.stride - 1) / axis.stride : 0;
}

constexpr int kPixelThreads = kBlockPixels / kThreadPixels;  // whole warps: a warp's threads share their channels
constexpr int kPixelWarps = kPixelThreads / kWarpSize;
constexpr int kConvolutionThreads = kPixelThreads * (kBlockChannels / kThreadChannels);
constexpr int kConvolutionBlocks = kConvolutionThreads < 512 ? 512 / kConvolutionThreads : 1;  // of a multiprocessor
constexpr int kPixelGroups = kThreadPixels / 4;  // a thread's pixels come in fours
constexpr int kGroupPixels = kBlockPixels / kPixelGroups;
constexpr int kMembersAtOnce = kConvolutionThreads / kBlockPixels;  // source channels that the threads fetch together
constexpr int kPixelFetches = kDepth / kMembersAtOnce;
constexpr int kRowsAtOnce = kConvolutionThreads / kBlockChannels;  // the same of weights
constexpr int kRowFetches = kDepth / kRowsAtOnce;

// What a block computes.
struct Tile {
  int64_t sample;
  int first_channel;
  int phase_y;  // of the target; 0 where that is coarse
  int phase_x;
  int columns;   // of the grid
  int first;     // pixel of the grid
  int end;       // beyond the last pixel of the grid
  int64_t part;  // counts the tiles of a channel of a sample
};

// What a block multiplies at once: a row of taps, from `tap` on, with kDepth channels of the source.
struct Step {
  int phase_y;  // of the source; that of the target where the source is coarse
  int phase_x, row, tap, channel;
};

// A pixel of the grid.
struct Place {
  int row, column;
};

template <bool kToFine>
__host__ __device__ inline int64_t grid_columns(const Axis& x, int phase) {
  return kToFine ? lattice_of(x, phase) : x.coarse + x.most - 1;
}

// Tiles of the largest grid of an image.
template <bool kToFine>
__host__ __device__ inline int64_t tiles_of_grid(const Convolution& convolution) {
  const int64_t rows = kToFine ? lattice_of(convolution.y, 0) : convolution.y.coarse;
  return (rows * grid_columns<kToFine>(convolution.x, 0) + kBlockPixels - 1) / kBlockPixels;
}

template <bool kToFine>
__host__ __device__ inline int64_t phases_of(const Convolution& convolution) {
  return kToFine ? static_cast<int64_t>(convolution.y.stride) * convolution.x.stride : 1;
}

template <bool kToFine>
__host__ __device__ inline int64_t channel_tiles(const Convolution& convolution) {
  const int channels = kToFine ? convolution.fine_channels : convolution.coarse_channels;
  return (channels + kBlockChannels - 1) / kBlockChannels;
}

template <bool kToFine>
__device__ inline Tile tile_of(const Convolution& convolution, int64_t item) {
  const int64_t parts = phases_of<kToFine>(convolution) * tiles_of_grid<kToFine>(convolution);
  const int64_t strips = channel_tiles<kToFine>(convolution);
  const int64_t image = item / strips;
  Tile tile;
  tile.first_channel = static_cast<int>(item - image * strips) * kBlockChannels;
  tile.sample = image / parts;
  tile.part = image - tile.sample * parts;
  const int64_t number = tile.part % tiles_of_grid<kToFine>(convolution);
  const int phase = static_cast<int>(tile.part / tiles_of_grid<kToFine>(convolution));
  tile.phase_y = phase / convolution.x.stride;
  tile.phase_x = phase % convolution.x.stride;
  tile.columns = static_cast<int>(grid_columns<kToFine>(convolution.x, tile.phase_x));
  // Above the coarse rows the grid has those that only fine pixels reach.
  const int rows = kToFine ? lattice_of(convolution.y, tile.phase_y) : convolution.y.coarse;
  const int above = kToFine ? 0 : (convolution.y.most - 1) * tile.columns;
  tile.first = above + static_cast<int>(number) * kBlockPixels;
  tile.end = above + rows * tile.columns;
  return tile;
}

// The first tap of a phase: where the target is coarse, taps are counted backwards from the largest number of them.
template <bool kToFine>
__device__ inline int first_tap(const Axis& axis, int phase) {
  return kToFine ? 0 : axis.most - taps_of(axis, phase);
}

template <bool kToFine>
__device__ inline int end_of_taps(const Axis& axis, int phase) {
  return kToFine ? taps_of(axis, phase) : axis.most;
}

template <bool kToFine>
__device__ inline Step first_step(const Convolution& convolution, const Tile& tile) {
  const int row = first_tap<kToFine>(convolution.y, tile.phase_y);
  return {tile.phase_y, tile.phase_x, row, first_tap<kToFine>(convolution.x, tile.phase_x), 0};
}

// Goes on to the next step; false where there is none.
template <int kTaps, bool kToFine>
__device__ inline bool advance(const Convolution& convolution, Step& step) {
  step.channel += kDepth;
  if (step.channel < (kToFine ? convolution.coarse_channels : convolution.fine_channels)) return true;
  step.channel = 0;
  step.tap += kTaps;
  if (step.tap < end_of_taps<kToFine>(convolution.x, step.phase_x)) return true;
  step.tap = first_tap<kToFine>(convolution.x, step.phase_x);
  if (++step.row < end_of_taps<kToFine>(convolution.y, step.phase_y)) return true;
  if constexpr (!kToFine) {
    ++step.phase_x;
    if (step.phase_x == convolution.x.stride || step.phase_x == convolution.x.kernel) {
      step.phase_x = 0;
      ++step.phase_y;
      if (step.phase_y == convolution.y.stride || step.phase_y == convolution.y.kernel) return false;
    }
    step.row = first_tap<kToFine>(convolution.y, step.phase_y);
    step.tap = first_tap<kToFine>(convolution.x, step.phase_x);
    return true;
  }
  return false;
}

template <bool kToFine>
__device__ inline int source_plane(const Convolution& convolution) {
  return kToFine ? convolution.coarse_plane : convolution.fine_plane;
}

template <bool kToFine>
__device__ inline int target_plane(const Convolution& convolution) {
  return kToFine ? convolution.fine_plane : convolution.coarse_plane;
}

__device__ inline Place place_of(int pixel, int columns) {
  if (pixel < 0) return {-1, 0};  // before the image
  return {pixel / columns, pixel % columns};
}

// Whether the source has anything for a tile: between the taps of a stride larger than the kernel there is nothing.
__device__ inline bool has_taps(const Convolution& convolution, const Tile& tile) {
  return tile.first < tile.end && taps_of(convolution.y, tile.phase_y) > 0 && taps_of(convolution.x, tile.phase_x) > 0;
}

// The offset of what a step's first tap meets at a place of the grid, in an image of the source; -1 where there is
// nothing.
template <bool kToFine>
__device__ inline int source_offset(const Convolution& convolution, const Step& step, const Place& place) {
  const Axis& y = convolution.y;
  const Axis& x = convolution.x;
  const int row = place.row - step.row;
  const int column = place.column - step.tap;
  const int rows = kToFine ? y.coarse : lattice_of(y, step.phase_y);
  const int columns = kToFine ? x.coarse : lattice_of(x, step.phase_x);
  if (row < 0 || row >= rows || column < 0 || column >= columns) return -1;
  if constexpr (kToFine) return row * x.coarse + column;
  return (row * y.stride + step.phase_y) * x.fine + column * x.stride + step.phase_x;
}

// The offset of a pixel of the grid in an image of the target; -1 where that has none.
template <bool kToFine>
__device__ inline int target_offset(const Convolution& convolution, const Tile& tile, int pixel) {
  if (pixel >= tile.end) return -1;
  const Axis& y = convolution.y;
  const Axis& x = convolution.x;
  const int row = pixel / tile.columns;
  const int column = pixel % tile.columns;
  if constexpr (kToFine) {
    return (row * y.stride + tile.phase_y) * x.fine + column * x.stride + tile.phase_x;
  }
  const int coarse_row = row - (y.most - 1);
  const int coarse_column = column - (x.most - 1);
  return coarse_column < 0 ? -1 : coarse_row * x.coarse + coarse_column;
}

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
  float pixels[kDepth][kBlockPixels + kWindow<kTaps> - 4], weights[kTaps][kDepth][kBlockChannels];
};

// This thread's pixels of the grid that a step's taps reach: one of the tile's, and one beyond them.
struct Reach {
  Place own;
  Place beyond;
};

// One thread's share of a step's pixels, on their way to shared memory.
template <int kTaps>
struct FetchedPixels {
  float own[kPixelFetches], beyond;
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
    float activated[kThreadPixels], sum = 0.0f;
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

// The gradient of the weights: of tap k between a coarse and a fine channel, the sum over samples and coarse pixels i
// of coarse[i] * dfine[i * stride + k]. A block sums a part of the pixels for kWeightChannels coarse and as many fine
// channels, at kTaps taps of a lattice, which slide along one stretch of pixels: the grid's rows are kTaps - 1 pixels
// longer than those of the coarse images. Before sums run long in registers they go to the block's own place in memory,
// and all parts are added at the end, in order and in double: rounding does not grow with the number of pixels.

constexpr int kWeightThreadsASide = kWeightChannels / 4;  // a thread has 4 x 4 channels
constexpr int kWeightThreads = kWeightThreadsASide * kWeightThreadsASide;
constexpr int kWeightBlocksAtOnce = 512 / kWeightThreads;  // of a multiprocessor
constexpr int kWeightPitch = kWeightPixels + 4;            // room for a halo; and lanes that read down do not collide
constexpr int kSideChannelsAtOnce = kWeightThreads / kWeightPixels;  // that the threads fetch together
constexpr int kSideFetches = kWeightChannels / kSideChannelsAtOnce;
constexpr int kStepsInRegisters = 2048 / kWeightPixels;

// How the sums are spread over blocks.
struct WeightParts {
  int64_t count;
  int64_t length;    // steps of one part; the last may have fewer
  int64_t steps;     // of all samples
  int sample_steps;  // of one sample
  int64_t rows;      // of kTaps taps
  int64_t tiles;     // of channels on either side, and rows
};

// What a block sums.
struct WeightTile {
  int64_t part;
  int first_coarse;  // channels
  int first_fine, tap_y, phase_x;
  int tap_x;  // of the lattice, the first of kTaps
};

inline int64_t tiles_of_channels(int channels) { return ceil_div(channels, kWeightChannels); }

inline WeightParts weight_parts(const Convolution& convolution, int taps) {
  const int64_t pixels = static_cast<int64_t>(convolution.y.coarse) * (convolution.x.coarse + taps - 1);
  const int sample_steps = static_cast<int>(ceil_div(pixels, kWeightPixels));
  const int64_t steps = convolution.samples * sample_steps;
  const int64_t rows = static_cast<int64_t>(convolution.y.kernel) * (convolution.x.kernel / taps);
  const int64_t tiles =
      tiles_of_channels(convolution.coarse_channels) * tiles_of_channels(convolution.fine_channels) * rows;
  const int64_t wanted = ceil_div(kWeightBlocks, tiles > 1 ? tiles : 1);
  const int64_t length = ceil_div(steps, wanted) > 1 ? ceil_div(steps, wanted) : 1;
  const int64_t count = ceil_div(steps, length);
  return {count > 1 ? count : 1, length, steps, sample_steps, rows, tiles};
}

template <int kTaps>
__device__ inline WeightTile weight_tile(const Convolution& convolution, const WeightParts& parts, int64_t item) {
  const int64_t fine_tiles = (convolution.fine_channels + kWeightChannels - 1) / kWeightChannels;
  const int64_t coarse_tiles = (convolution.coarse_channels + kWeightChannels - 1) / kWeightChannels;
  const int columns = convolution.x.kernel / kTaps;
  WeightTile tile;
  const int row = static_cast<int>(item % parts.rows);  // neighbouring blocks read the same pixels
  item /= parts.rows;
  tile.first_fine = static_cast<int>(item % fine_tiles) * kWeightChannels;
  item /= fine_tiles;
  tile.first_coarse = static_cast<int>(item % coarse_tiles) * kWeightChannels;
  tile.part = item / coarse_tiles;
  tile.tap_y = row / columns;
  tile.phase_x = row % columns % convolution.x.stride;
  tile.tap_x = row % columns / convolution.x.stride * kTaps;
  return tile;
}

// Where a block has come to.
struct Cursor {
  int64_t sample;
  int first;  // pixel of the grid
};

// A step in shared memory.
template <int kTaps>
struct WeightBuffer {
  float coarse[kWeightChannels][kWeightPitch], fine[kWeightChannels][kWeightPitch];
};

// One thread's share of it, on its way there.
template <int kTaps>
struct FetchedChannels {
  static constexpr int kBeyond = ((kTaps - 1) * kWeightChannels + kWeightThreads - 1) / kWeightThreads;
  float coarse[kSideFetches], fine[kSideFetches], beyond[kBeyond > 0 ? kBeyond : 1];
};

// The offset of a pixel of the grid in a coarse image, and of what the first tap meets there in a fine one; -1 where
// there is nothing.
__device__ inline int coarse_offset(const Convolution& convolution, const Place& place) {
  if (place.row >= convolution.y.coarse || place.column >= convolution.x.coarse) return -1;
  return place.row * convolution.x.coarse + place.column;
}

__device__ inline int fine_offset(const Convolution& convolution, const WeightTile& tile, const Place& place) {
  const int64_t column = static_cast<int64_t>(place.column + tile.tap_x) * convolution.x.stride + tile.phase_x;
  if (place.row >= convolution.y.coarse || column >= convolution.x.fine) return -1;
  return (place.row * convolution.y.stride + tile.tap_y) * convolution.x.fine + static_cast<int>(column);
}

// One side's pixels, of this thread's channels, at an offset in every image; zeros where that is -1.
__device__ inline void fetch_side(const float* images, int64_t sample, int channels, int first_channel, int64_t plane,
                                  int offset, float (&fetched)[kSideFetches]) {
  const int first = first_channel + static_cast<int>(threadIdx.x / kWeightPixels);
  const int left = offset >= 0 ? channels - first : 0;  // channels that there are
  const float* pixel = images + ((sample * channels + first) * plane + offset);
#pragma unroll
  for (int i = 0; i < kSideFetches; ++i) {
    fetched[i] = i * kSideChannelsAtOnce < left ? *pixel : 0.0f;
    pixel += kSideChannelsAtOnce * plane;
  }
}

template <int kTaps>
__device__ inline void fetch_channels(const float* coarse, const float* fine, const Convolution& convolution,
                                      const WeightTile& tile, const Cursor& cursor, FetchedChannels<kTaps>& fetched) {
  const int columns = convolution.x.coarse + kTaps - 1;
  const Place place = place_of(cursor.first + static_cast<int>(threadIdx.x % kWeightPixels), columns);
  fetch_side(coarse, cursor.sample, convolution.coarse_channels, tile.first_coarse, convolution.coarse_plane,
             coarse_offset(convolution, place), fetched.coarse);
  fetch_side(fine, cursor.sample, convolution.fine_channels, tile.first_fine, convolution.fine_plane,
             fine_offset(convolution, tile, place), fetched.fine);
  if constexpr (kTaps > 1) {
    const int turn = static_cast<int>(threadIdx.x % kHalo<kTaps>);
    const int offset = fine_offset(convolution, tile, place_of(cursor.first + kWeightPixels + turn, columns));
#pragma unroll
    for (int i = 0; i < FetchedChannels<kTaps>::kBeyond; ++i) {
      const int member = static_cast<int>((threadIdx.x + i * kWeightThreads) / kHalo<kTaps>);
      const int channel = tile.first_fine + member;
      const bool has_fine = offset >= 0 && member < kWeightChannels && channel < convolution.fine_channels;
      const int64_t image = (cursor.sample * convolution.fine_channels + channel) * convolution.fine_plane;
      fetched.beyond[i] = has_fine ? fine[image + offset] : 0.0f;
    }
  }
}

template <int kTaps>
__device__ inline void store(const FetchedChannels<kTaps>& fetched, WeightBuffer<kTaps>& buffer) {
  const int pixel = static_cast<int>(threadIdx.x % kWeightPixels);
#pragma unroll
  for (int i = 0; i < kSideFetches; ++i) {
    const int channel = static_cast<int>(threadIdx.x / kWeightPixels) + i * kSideChannelsAtOnce;
    buffer.coarse[channel][pixel] = fetched.coarse[i];
    buffer.fine[channel][pixel] = fetched.fine[i];
  }
  if constexpr (kTaps > 1) {
#pragma unroll
    for (int i = 0; i < FetchedChannels<kTaps>::kBeyond; ++i) {
      const unsigned number = threadIdx.x + i * kWeightThreads;
      if (number >= kHalo<kTaps> * kWeightChannels) break;
      buffer.fine[number / kHalo<kTaps>][kWeightPixels + number % kHalo<kTaps>] = fetched.beyond[i];
    }
  }
}

// A thread's channels are kWeightThreadsASide apart: neighbouring lanes read neighbouring rows.
template <int kTaps>
__device__ inline void multiply(const WeightBuffer<kTaps>& buffer, float (&sums)[4][4][kTaps]) {
  const int coarse_thread = threadIdx.x % kWeightThreadsASide;
  const int fine_thread = threadIdx.x / kWeightThreadsASide;
#pragma unroll 2
  for (int pixel = 0; pixel < kWeightPixels; pixel += 4) {
    float values[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_vector<4>(&buffer.coarse[coarse_thread + i * kWeightThreadsASide][pixel], values[i]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float window[kWindow<kTaps>];
#pragma unroll
      for (int i = 0; i < kWindow<kTaps>; i += 4) {
        load_vector<4>(&buffer.fine[fine_thread + j * kWeightThreadsASide][pixel + i], &window[i]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[i][j][tap] += values[i][k] * window[k + tap];
        }
      }
    }
  }
}

// Writes the sums to this block's place in memory, or adds them to what is there, and empties them.
template <int kTaps>
__device__ inline void put_away(float (&sums)[4][4][kTaps], bool is_first, float* place) {
#pragma unroll
  for (int i = 0; i < 16 * kTaps; ++i) {
    float& sum = sums[i / (4 * kTaps)][i / kTaps % 4][i % kTaps];
    place[i * kWeightThreads] = is_first ? sum : place[i * kWeightThreads] + sum;
    sum = 0.0f;
  }
}

// Grid (parts * tiles): `partial` has the sums of each, (parts, tiles, 16 * kTaps, kWeightThreads).
template <int kTaps>
__global__ void __launch_bounds__(kWeightThreads, kWeightBlocksAtOnce)
    weight_gradient_parts(const float* __restrict__ coarse, const float* __restrict__ fine, Convolution convolution,
                          WeightParts parts, float* partial) {
  __shared__ __align__(16) WeightBuffer<kTaps> buffers[2];
  __shared__ WeightTile tile;  // not in registers, which the sums want
  for (int64_t item = blockIdx.x; item < parts.count * parts.tiles; item += gridDim.x) {
    __syncthreads();  // the tile before has been read, and both buffers
    if (threadIdx.x == 0) tile = weight_tile<kTaps>(convolution, parts, item);
    __syncthreads();
    float* place = partial + item * (16 * kTaps * kWeightThreads) + threadIdx.x;
    const int64_t begin = tile.part * parts.length;
    const int64_t end = begin + parts.length < parts.steps ? begin + parts.length : parts.steps;
    float sums[4][4][kTaps] = {};
    bool is_first = true;
    FetchedChannels<kTaps> fetched;
    Cursor cursor = {begin / parts.sample_steps, static_cast<int>(begin % parts.sample_steps) * kWeightPixels};
    if (begin < end) fetch_channels<kTaps>(coarse, fine, convolution, tile, cursor, fetched);
    int turn = 0;
    for (int64_t left = end - begin; left > 0; --left, turn ^= 1) {
      store(fetched, buffers[turn]);
      __syncthreads();
      cursor.first += kWeightPixels;
      if (cursor.first >= parts.sample_steps * kWeightPixels) cursor = {cursor.sample + 1, 0};
      if (left > 1) fetch_channels<kTaps>(coarse, fine, convolution, tile, cursor, fetched);
      multiply(buffers[turn], sums);
      if (left % kStepsInRegisters == 0) {
        put_away(sums, is_first, place);
        is_first = false;
      }
    }
    put_away(sums, is_first, place);
  }
}

// Grid (sums of all tiles / kThreads), one thread a sum: adds its parts up in order.
template <int kTaps>
__global__ void __launch_bounds__(kThreads)
    add_weight_parts(const float* partial, Convolution convolution, WeightParts parts, float* dweight) {
  constexpr int kSums = 16 * kTaps;
  const int64_t length = parts.tiles * kSums * kWeightThreads;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < length; i += stride) {
    const int thread = static_cast<int>(i % kWeightThreads);
    const int number = static_cast<int>(i / kWeightThreads % kSums);
    const WeightTile tile = weight_tile<kTaps>(convolution, parts, i / (kWeightThreads * kSums));
    const int coarse = tile.first_coarse + thread % kWeightThreadsASide + number / (4 * kTaps) * kWeightThreadsASide;
    const int fine = tile.first_fine + thread / kWeightThreadsASide + number / kTaps % 4 * kWeightThreadsASide;
    if (coarse >= convolution.coarse_channels || fine >= convolution.fine_channels) continue;
    double sum = 0.0;
    for (int64_t part = 0; part < parts.count; ++part) sum += partial[part * length + i];
    const int tap = tile.phase_x + (tile.tap_x + number % kTaps) * convolution.x.stride;
    const int64_t pair = static_cast<int64_t>(coarse) * convolution.fine_channels + fine;
    dweight[(pair * convolution.y.kernel + tile.tap_y) * convolution.x.kernel + tap] = static_cast<float>(sum);
  }
}

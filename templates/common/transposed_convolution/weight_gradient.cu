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
  int first_fine;
  int tap_y;
  int phase_x;
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
  float coarse[kWeightChannels][kWeightPitch];
  float fine[kWeightChannels][kWeightPitch];
};

// One thread's share of it, on its way there.
template <int kTaps>
struct FetchedChannels {
  static constexpr int kBeyond = ((kTaps - 1) * kWeightChannels + kWeightThreads - 1) / kWeightThreads;
  float coarse[kSideFetches];
  float fine[kSideFetches];
  float beyond[kBeyond > 0 ? kBeyond : 1];
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

// Taps that slide together.
inline int weight_taps(const Convolution& convolution) { return divides_taps(convolution.x, 3) ? 3 : 1; }

int64_t weight_gradient_scratch(const Convolution& convolution) {
  const int taps = weight_taps(convolution);
  const WeightParts parts = weight_parts(convolution, taps);
  return parts.count * parts.tiles * 16 * taps * kWeightThreads;
}

template <int kTaps>
LaunchStatus launch_weight_gradient_of(const float* coarse, const float* fine, const Convolution& convolution,
                                       float* dweight, float* partial, cudaStream_t stream) {
  const WeightParts parts = weight_parts(convolution, kTaps);
  const int64_t blocks = parts.count * parts.tiles;
  if (blocks == 0) return {nullptr, nullptr};
  weight_gradient_parts<kTaps>
      <<<grid_for(blocks), kWeightThreads, 0, stream>>>(coarse, fine, convolution, parts, partial);
  const LaunchStatus status = launched("weight_gradient_parts");
  if (status.kernel != nullptr) return status;
  const int64_t sums = parts.tiles * 16 * kTaps * kWeightThreads;
  add_weight_parts<kTaps>
      <<<grid_for(ceil_div(sums, kThreads)), kThreads, 0, stream>>>(partial, convolution, parts, dweight);
  return launched("add_weight_parts");
}

LaunchStatus launch_weight_gradient(const float* coarse, const float* fine, const Convolution& convolution,
                                    float* dweight, float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  if (weight_taps(convolution) == 3) {
    return launch_weight_gradient_of<3>(coarse, fine, convolution, dweight, scratch, stream);
  }
  return launch_weight_gradient_of<1>(coarse, fine, convolution, dweight, scratch, stream);
}

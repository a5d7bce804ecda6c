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
  int phase_x;
  int row;
  int tap;
  int channel;
};

// A pixel of the grid.
struct Place {
  int row;
  int column;
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

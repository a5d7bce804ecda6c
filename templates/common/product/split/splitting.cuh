// The splitting kernels: from float32 to tiles of halves (tiles.cuh). Rows beyond the matrix, up to a whole number of
// tiles of a cluster, are cleared.

constexpr int kSplitThreads = 256;
constexpr int kHeldEights = 4;  // of a row, that a thread keeps from one pass to the next

template <int kWidth>
__device__ inline void load_eight(const float* row, int64_t eight, int64_t depth, float (&values)[kEight]) {
#pragma unroll
  for (int i = 0; i < kEight; i += kWidth) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) values[i + j] = 0.0f;
    if (eight * kEight + i < depth) load_vector<kWidth>(row + eight * kEight + i, values + i);
  }
}

__device__ inline unsigned largest_of(const float (&values)[kEight]) {
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) largest = max(largest, magnitude_of(values[i]));
  return largest;
}

// Rows of a matrix to be split; `extent` of them are the matrix's.
struct RowsToSplit {
  const float* source;
  int64_t extent;
  int64_t count;
  unsigned* magnitudes;  // of rows
  uint8_t* tiles;
};

// Depth runs along memory, in both matrices. Grid (rows of both): one block a row. It also clears counters.
template <int kWidth>
__global__ void __launch_bounds__(kSplitThreads)
    split_rows(RowsToSplit left, RowsToSplit right, int64_t depth, int64_t steps, unsigned* counters, int64_t count) {
  __shared__ unsigned of_warps[kSplitThreads / 32];
  const bool of_left = blockIdx.x < left.count;
  const RowsToSplit rows = of_left ? left : right;
  const int64_t row = of_left ? blockIdx.x : blockIdx.x - left.count;
  const float* const values = rows.source + row * depth;
  const int64_t inside = row < rows.extent ? depth : 0;
  if (blockIdx.x == 0) {
    for (int64_t i = threadIdx.x; i < count; i += kSplitThreads) counters[i] = 0;
  }
  const int64_t eights = steps * kChunksOfStep;
  float held[kHeldEights][kEight];
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kHeldEights; ++i) load_eight<kWidth>(values, threadIdx.x + i * kSplitThreads, inside, held[i]);
#pragma unroll
  for (int i = 0; i < kHeldEights; ++i) largest = max(largest, largest_of(held[i]));
  for (int64_t eight = threadIdx.x + kHeldEights * kSplitThreads; eight < eights; eight += kSplitThreads) {
    float more[kEight];
    load_eight<kWidth>(values, eight, inside, more);
    largest = max(largest, largest_of(more));
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kSplitThreads / 32; ++warp) largest = max(largest, of_warps[warp]);
  if (threadIdx.x == 0) rows.magnitudes[row] = largest;
  const float scale = row_scale(largest);
  uint8_t* const line = rows.tiles + row / kTile * steps * kTileBytes + row % kTile * kLine;
  const int chunk = static_cast<int>(threadIdx.x) % kChunksOfStep;
#pragma unroll
  for (int i = 0; i < kHeldEights; ++i) {
    const int64_t eight = threadIdx.x + i * kSplitThreads;
    if (eight >= eights) break;
    store_halves(held[i], scale, line + eight / kChunksOfStep * kTileBytes, static_cast<int>(row % 8), chunk);
  }
  for (int64_t eight = threadIdx.x + kHeldEights * kSplitThreads; eight < eights; eight += kSplitThreads) {
    float more[kEight];
    load_eight<kWidth>(values, eight, inside, more);
    store_halves(more, scale, line + eight / kChunksOfStep * kTileBytes, static_cast<int>(row % 8), chunk);
  }
}

constexpr int kDepthsTogether = 256;  // of which a block finds the largest

// Extent runs along memory: the largest value of each column, into magnitudes that were cleared. Maxima of bits know no
// order, so that atomics leave the same each time. Grid (strips of 32 kWidth columns, depth / kDepthsTogether).
template <int kWidth>
__global__ void __launch_bounds__(kSplitThreads)
    measure_columns(const float* __restrict__ source, int64_t extent, int64_t depth, unsigned* magnitudes) {
  constexpr int kLines = kSplitThreads / 32;
  __shared__ unsigned of_lines[kLines][32 * kWidth];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = static_cast<int>(threadIdx.x) / 32;
  const int64_t column = (blockIdx.x * int64_t{32} + lane) * kWidth;
  const int64_t first = blockIdx.y * int64_t{kDepthsTogether} + line;
  unsigned largest[kWidth] = {};
#pragma unroll 8
  for (int64_t i = first; i < first + kDepthsTogether; i += kLines) {
    if (column >= extent || i >= depth) break;
    float values[kWidth];
    load_vector<kWidth>(source + i * extent + column, values);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) largest[j] = max(largest[j], magnitude_of(values[j]));
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) of_lines[line][lane * kWidth + j] = largest[j];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * kWidth; i += kSplitThreads) {
    unsigned of_all = 0;
#pragma unroll
    for (int j = 0; j < kLines; ++j) of_all = max(of_all, of_lines[j][i]);
    const int64_t target = blockIdx.x * int64_t{32} * kWidth + i;
    if (target < extent) atomicMax(magnitudes + target, of_all);
  }
}

// Extent runs along memory. Grid (steps, tiles): one block a tile, which it turns in shared memory.
template <int kWidth>
__global__ void __launch_bounds__(kSplitThreads)
    split_columns(const float* __restrict__ source, int64_t extent, int64_t depth, int64_t steps,
                  const unsigned* __restrict__ magnitudes, uint8_t* __restrict__ tiles) {
  __shared__ float turned[kStep][kTile + 1];
  const int64_t first_depth = blockIdx.x * int64_t{kStep};
  const int64_t first_row = blockIdx.y * int64_t{kTile};
#pragma unroll
  for (int i = 0; i < kStep * kTile / kWidth / kSplitThreads; ++i) {
    const int vector = static_cast<int>(threadIdx.x) + i * kSplitThreads;
    const int at = vector / (kTile / kWidth);
    const int row = vector % (kTile / kWidth) * kWidth;
    float values[kWidth] = {};
    if (first_depth + at < depth && first_row + row < extent) {
      load_vector<kWidth>(source + (first_depth + at) * extent + first_row + row, values);
    }
#pragma unroll
    for (int j = 0; j < kWidth; ++j) turned[at][row + j] = values[j];
  }
  __syncthreads();
  uint8_t* const tile = tiles + (blockIdx.y * steps + blockIdx.x) * kTileBytes;
#pragma unroll
  for (int i = 0; i < kTile * kChunksOfStep / kSplitThreads; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * kSplitThreads;
    const int row = item / kChunksOfStep;
    const int chunk = item % kChunksOfStep;
    float values[kEight];
#pragma unroll
    for (int j = 0; j < kEight; ++j) values[j] = turned[chunk * kEight + j][row];
    const float scale = row_scale(first_row + row < extent ? magnitudes[first_row + row] : 0);
    store_halves(values, scale, tile + row * kLine, row, chunk);
  }
}

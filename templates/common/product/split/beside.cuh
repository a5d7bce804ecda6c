// Splitting the right matrix while the product runs: memory has little to do then. The rows that the first tiles need
// are split before the launch. The others are for three warps of every block, which copy nothing: a warp claims one row
// after another, and counts it at its tile when it is written. Whoever claims runs, so that nobody waits in vain, even
// if blocks have to wait for a place on the device.

// Rows first .. end of the right matrix, all of its tiles included.
struct LaterRows {
  int first;
  int end;
  unsigned* claimed;     // how many of them
  unsigned* written;     // of each tile
  unsigned* magnitudes;  // of rows
  uint8_t* tiles;
};

// Until a tile is written, by the thread that copies it: copies are another proxy's than the stores.
__device__ inline void await_tile(const LaterRows& later, int64_t tile) {
  if (tile * kTile < later.first) return;
  unsigned written = 0;
  while (written < kTile) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(written) : "l"(later.written + tile) : "memory");
  }
  asm volatile("fence.proxy.async;" ::: "memory");
}

// The largest value of a row, in all lanes.
__device__ inline unsigned largest_of_row(const float* row, int64_t depth, int lane) {
  constexpr int kInFlight = 4;
  unsigned largest = 0;
#pragma unroll 1
  for (int64_t eight = lane; eight * kEight < depth; eight += 32 * kInFlight) {
    float values[kInFlight][kEight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) load_eight<4>(row, eight + 32 * i, depth, values[i]);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) largest = max(largest, largest_of(values[i]));
  }
  return __reduce_max_sync(kAllLanes, largest);
}

// Splits rows as long as there are any, by one warp. `extent` of them are the matrix's.
__device__ inline void split_later_rows(const LaterRows& later, const float* source, int64_t extent, int64_t depth,
                                        int steps) {
  constexpr int kInFlight = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  while (later.first < later.end) {
    unsigned claimed = 0;
    if (lane == 0) claimed = atomicAdd(later.claimed, 1u);
    const int row = later.first + static_cast<int>(__shfl_sync(kAllLanes, claimed, 0));
    if (row >= later.end) return;
    const float* const values = source + row * depth;
    const int64_t inside = row < extent ? depth : 0;
    const unsigned largest = largest_of_row(values, inside, lane);
    if (lane == 0) later.magnitudes[row] = largest;
    const float scale = row_scale(largest);
    uint8_t* const line = later.tiles + int64_t{row / kTile} * steps * kTileBytes + row % kTile * kLine;
    const int eights = steps * kChunksOfStep;
#pragma unroll 1
    for (int eight = lane; eight < eights; eight += 32 * kInFlight) {
      float held[kInFlight][kEight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) load_eight<4>(values, eight + 32 * i, inside, held[i]);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int at = eight + 32 * i;
        if (at >= eights) break;
        store_halves(held[i], scale, line + int64_t{at / kChunksOfStep} * kTileBytes, row % 8, at % kChunksOfStep);
      }
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __threadfence();
    __syncwarp();
    if (lane == 0) atomicAdd(later.written + row / kTile, 1u);
  }
}

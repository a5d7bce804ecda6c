// The gradient of y, summed over entries for the minima and over rows for the bias, in one reading. It is taken as a
// matrix whose positions run along memory, down which threads walk line by line: rows or entries are the positions,
// whichever lie closer together. Each block sums a chunk of lines; then all chunks are added up, in order.

constexpr int kPositions = 4;  // that a thread owns
constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / kWarpSize;
constexpr int kLinesTogether = 16;  // whose sums cross a block at a time
constexpr int kLinesInFlight = 4;   // of these, loaded together

// Where one entry, or one row, begins.
__device__ inline int64_t entry_offset(const Cotangent& dy, int64_t entry) {
  const Entry place = entry_of(entry, dy.outer, dy.inner);
  return place.outer * dy.outer_stride + place.inner * dy.inner_stride;
}

template <bool kRowsRun>
__device__ inline int64_t position_offset(const Cotangent& dy, int64_t position) {
  return kRowsRun ? position * dy.row_stride : entry_offset(dy, position);
}

template <bool kRowsRun>
__device__ inline int64_t line_offset(const Cotangent& dy, int64_t line) {
  return kRowsRun ? entry_offset(dy, line) : line * dy.row_stride;
}

// Positions that a block owns.
__host__ __device__ inline int64_t strip_of(int threads) { return static_cast<int64_t>(threads) * kPositions; }

// Grid (strips * chunks). Writes, where they are not null, position_sums (chunks, positions) and line_sums
// (strips, lines).
template <bool kRowsRun>
__global__ void __launch_bounds__(kSumThreads)
    sum_both_ways(Cotangent dy, Chunks chunks, float* __restrict__ position_sums, float* __restrict__ line_sums) {
  __shared__ float warp_sums[kLinesTogether][kSumWarps];
  const int64_t entries = dy.outer * dy.inner;
  const int64_t positions = kRowsRun ? dy.rows : entries;
  const int64_t lines = kRowsRun ? entries : dy.rows;
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int64_t strips = (positions + strip_of(blockDim.x) - 1) / strip_of(blockDim.x);
  for (int64_t item = blockIdx.x; item < strips * chunks.count; item += gridDim.x) {
    const int64_t strip = item % strips;
    const int64_t chunk = item / strips;
    const int64_t first = strip * strip_of(blockDim.x) + warp * kWarpSize * kPositions + lane;
    const int64_t begin = chunk * chunks.rows;
    const int64_t end = begin + chunks.rows < lines ? begin + chunks.rows : lines;
    const float* sources[kPositions];
    double sums[kPositions] = {};
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      const int64_t position = first + i * kWarpSize;
      sources[i] = position < positions ? dy.data + position_offset<kRowsRun>(dy, position) : nullptr;
    }
    for (int64_t line = begin; line < end; line += kLinesTogether) {
      const int together = end - line < kLinesTogether ? static_cast<int>(end - line) : kLinesTogether;
      for (int next = 0; next < together; next += kLinesInFlight) {
        float values[kLinesInFlight][kPositions];
#pragma unroll
        for (int i = 0; i < kLinesInFlight; ++i) {
          const bool in_chunk = next + i < together;
          const int64_t offset = in_chunk ? line_offset<kRowsRun>(dy, line + next + i) : 0;
#pragma unroll
          for (int j = 0; j < kPositions; ++j) {
            values[i][j] = in_chunk && sources[j] != nullptr ? sources[j][offset] : 0.0f;
          }
        }
#pragma unroll
        for (int i = 0; i < kLinesInFlight; ++i) {
          float line_sum = 0.0f;
#pragma unroll
          for (int j = 0; j < kPositions; ++j) {
            sums[j] += values[i][j];
            line_sum += values[i][j];
          }
#pragma unroll
          for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
            line_sum += __shfl_down_sync(kAllLanes, line_sum, distance);
          }
          if (lane == 0) warp_sums[next + i][warp] = line_sum;
        }
      }
      __syncthreads();
      if (line_sums != nullptr && threadIdx.x < together) {
        double sum = 0.0;
        for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) sum += warp_sums[threadIdx.x][i];
        line_sums[strip * lines + line + threadIdx.x] = static_cast<float>(sum);
      }
      __syncthreads();
    }
    if (position_sums == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kPositions; ++i) {
      if (sources[i] == nullptr) continue;
      position_sums[chunk * positions + first + i * kWarpSize] = static_cast<float>(sums[i]);
    }
  }
}

// target (extent) = the sum of its parts (count, extent), in double and in their order.
struct Parts {
  const float* parts;
  int64_t count;
  int64_t extent;
  float* target;
};

constexpr int kPartLanes = 8;

// Grid (extent of the first / 32 + extent of the second / 32), block (32 elements, 8 lanes of parts).
__global__ void add_parts(Parts first, Parts second) {
  __shared__ double lane_sums[kPartLanes][kWarpSize];
  const int64_t blocks_of_first = (first.extent + kWarpSize - 1) / kWarpSize;
  const bool is_first = blockIdx.x < blocks_of_first;
  const Parts parts = is_first ? first : second;
  const int64_t element = (blockIdx.x - (is_first ? 0 : blocks_of_first)) * kWarpSize + threadIdx.x;
  double sum = 0.0;
  if (element < parts.extent) {
    for (int64_t part = threadIdx.y; part < parts.count; part += kPartLanes) {
      sum += parts.parts[part * parts.extent + element];
    }
  }
  lane_sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || element >= parts.extent) return;
  for (int lane = 1; lane < kPartLanes; ++lane) sum += lane_sums[lane][threadIdx.x];
  parts.target[element] = static_cast<float>(sum);
}

// How a gradient of y is walked over.
struct Walk {
  bool rows_run;
  int threads;
  int64_t positions;
  int64_t lines;
  int64_t strips;
  Chunks chunks;
};

inline Walk walk_of(const Cotangent& dy) {
  const int64_t entries = dy.outer * dy.inner;
  const int64_t entry_stride = dy.inner > 1 ? dy.inner_stride : dy.outer_stride;
  const bool rows_run = entries == 1 || (dy.rows > 1 && dy.row_stride <= entry_stride);
  const int64_t positions = rows_run ? dy.rows : entries;
  const int64_t lines = rows_run ? entries : dy.rows;
  const int threads = static_cast<int>(threads_for(positions, kSumThreads));
  const int64_t strips = ceil_div(positions, strip_of(threads));
  return {rows_run, threads, positions, lines, strips, chunks_of(lines, kLinesTogether)};
}

// One float more than needed at the least: torch gives empty tensors a null address, which reads as "not wanted".
int64_t cotangent_scratch(const Cotangent& dy) {
  const Walk walk = walk_of(dy);
  return walk.chunks.count * walk.positions + walk.strips * walk.lines + 1;
}

LaunchStatus launch_cotangent_sums(const Cotangent& dy, float* minima, float* bias, float* scratch, int device,
                                   void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const Walk walk = walk_of(dy);
  float* const position_target = walk.rows_run ? minima : bias;
  float* const line_target = walk.rows_run ? bias : minima;
  float* const position_parts = position_target != nullptr ? scratch : nullptr;
  float* const line_parts = line_target != nullptr ? scratch + walk.chunks.count * walk.positions : nullptr;
  if (walk.strips * walk.chunks.count > 0) {
    const unsigned blocks = grid_for(walk.strips * walk.chunks.count);
    if (walk.rows_run) {
      sum_both_ways<true><<<blocks, walk.threads, 0, stream>>>(dy, walk.chunks, position_parts, line_parts);
    } else {
      sum_both_ways<false><<<blocks, walk.threads, 0, stream>>>(dy, walk.chunks, position_parts, line_parts);
    }
    const LaunchStatus status = launched("sum_both_ways");
    if (status.kernel != nullptr) return status;
  }
  const Parts of_positions = {position_parts, walk.chunks.count, position_target ? walk.positions : 0, position_target};
  const Parts of_lines = {line_parts, walk.strips, line_target ? walk.lines : 0, line_target};
  const int64_t blocks = ceil_div(of_positions.extent, kWarpSize) + ceil_div(of_lines.extent, kWarpSize);
  if (blocks == 0) return {nullptr, nullptr};
  add_parts<<<grid_for(blocks), dim3(kWarpSize, kPartLanes), 0, stream>>>(of_positions, of_lines);
  return launched("add_parts");
}

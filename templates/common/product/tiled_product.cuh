// Matrix products in float32: a block multiplies a kBlockM x kBlockN tile in steps of kBlockK through shared memory, a
// thread holds kThreadM x kThreadN of it in registers. While one step is multiplied, the next is on its way from global
// memory; two buffers in shared memory make one barrier a step enough. What lies outside the matrices counts as 0.
//
// A float32 sum loses accuracy with its length. Registers have no room for second sums: every kPartialDepth steps of
// depth the sums are added to those in the target instead, which a block has to itself, and begin anew.

static_assert(kPartialDepth % kBlockK == 0, "sums are flushed between two steps");

constexpr int kTileThreads = kBlockM / kThreadM * (kBlockN / kThreadN);

// Depths that are multiplied without a jump; with more, registers spill.
constexpr int kUnroll = 2;

// Blocks on a multiprocessor at a time: with two, one multiplies while the other waits at its barrier.
constexpr int kTileBlocks = kTileThreads <= 256 ? 2 : 1;

// Carries one operand's tiles to shared memory, where they lie as [depth][extent]; depth is summed over. kDepthRuns:
// whether depth, not extent, runs along memory. All sizes are powers of two, so that the vectors of a thread lie at
// constant steps from its first.
template <bool kDepthRuns, int kExtent, int kWidth>
struct TileCarrier {
  static constexpr int kFloats = kExtent * kBlockK / kTileThreads;
  static constexpr int kLine = (kDepthRuns ? kBlockK : kExtent) / kWidth;  // vectors of a tile along memory
  // Keeps float4 rows aligned, and spreads transposed stores over the banks.
  static constexpr int kStride = kExtent + 4;

  const float* source;  // this thread's first vector of the next tile
  int64_t line;         // floats from one line in memory to the next
  int extent_left;      // of the operand, from the tile's first element on
  float held[kFloats];

  __device__ TileCarrier(const float* operand, int64_t first_extent, int64_t extent, int64_t depth)
      : line(kDepthRuns ? depth : extent) {
    const int64_t left = extent - first_extent;
    extent_left = left < kExtent ? static_cast<int>(left) : kExtent;
    source = operand + (kDepthRuns ? first_extent * line : first_extent) + across(0) * line + along(0);
  }

  // Where vector `index` of this thread lies within a tile: along memory, and across.
  static __device__ int along(int index) {
    return static_cast<int>(threadIdx.x % kLine) * kWidth + index * kTileThreads % kLine * kWidth;
  }
  static __device__ int across(int index) {
    return static_cast<int>(threadIdx.x / kLine) + index * kTileThreads / kLine;
  }
  static __device__ int depth_of(int index) { return kDepthRuns ? along(index) : across(index); }
  static __device__ int extent_of(int index) { return kDepthRuns ? across(index) : along(index); }

  // Takes the next tile, of which `depth_left` may be less than the whole. A vector lies inside or outside as a whole:
  // kWidth divides the side that runs along memory.
  __device__ void load(int64_t depth_left) {
#pragma unroll
    for (int index = 0; index < kFloats / kWidth; ++index) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) held[index * kWidth + i] = 0.0f;
      if (extent_of(index) < extent_left && depth_of(index) < depth_left) {
        const int64_t lines = across(index) - across(0);
        load_vector<kWidth>(source + lines * line + (along(index) - along(0)), held + index * kWidth);
      }
    }
    source += kDepthRuns ? kBlockK : kBlockK * line;
  }

  __device__ void store(float (*tile)[kStride]) const {
#pragma unroll
    for (int index = 0; index < kFloats / kWidth; ++index) {
      const int depth = depth_of(index);
      const int extent = extent_of(index);
      if constexpr (kDepthRuns) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) tile[depth + i][extent] = held[index * kWidth + i];
      } else {
        store_vector<kWidth>(&tile[depth][extent], held + index * kWidth);
      }
    }
  }
};

// Where a thread's element lies in its tile: runs of four, one run of every thread after another, so that the float4
// reads of a warp from shared memory are dense.
template <int kExtent, int kHeld>
__device__ inline int tile_position(int thread, int index) {
  return index / 4 * (kExtent / kHeld * 4) + thread * 4 + index % 4;
}

template <int kExtent, int kHeld>
__device__ inline void read_fragment(const float* line, int thread, float (&fragment)[kHeld]) {
#pragma unroll
  for (int index = 0; index < kHeld; index += 4) {
    load_vector<4>(line + tile_position<kExtent, kHeld>(thread, index), fragment + index);
  }
}

// This thread's place in the matrix: element (i, j) of its share lies at row(i), column(j).
struct TilePlace {
  int64_t first_m;  // of the block's tile
  int64_t first_n;
  int thread_m;
  int thread_n;

  __device__ int64_t row(int i) const { return first_m + tile_position<kBlockM, kThreadM>(thread_m, i); }
  __device__ int64_t column(int j) const { return first_n + tile_position<kBlockN, kThreadN>(thread_n, j); }
};

// sums += this thread's share of target, where there is any.
template <int kWidth>
__device__ inline void add_target(const float* target, const Product& product, const TilePlace& place,
                                  float (&sums)[kThreadM][kThreadN]) {
#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
    const int64_t m = place.row(i);
    if (m >= product.m) continue;
#pragma unroll
    for (int j = 0; j < kThreadN; j += kWidth) {
      const int64_t n = place.column(j);
      if (n >= product.n) continue;
      float values[kWidth];
      load_vector<kWidth>(target + m * product.n + n, values);
#pragma unroll
      for (int index = 0; index < kWidth; ++index) sums[i][j + index] += values[index];
    }
  }
}

// target = sums, each as `finish` leaves it.
template <int kWidth, typename Finish>
__device__ inline void store_target(const float (&sums)[kThreadM][kThreadN], const Product& product,
                                    const TilePlace& place, const Finish& finish, float* target) {
#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
    const int64_t m = place.row(i);
    if (m >= product.m) continue;
#pragma unroll
    for (int j = 0; j < kThreadN; j += kWidth) {
      const int64_t n = place.column(j);
      if (n >= product.n) continue;
      float values[kWidth];
#pragma unroll
      for (int index = 0; index < kWidth; ++index) values[index] = finish(sums[i][j + index], m, n + index);
      store_vector<kWidth>(target + m * product.n + n, values);
    }
  }
}

// The simplest epilogue: sums are stored as they are. Others add to a sum by its place, or also see what was stored
// (kSeesTile), which is called by all threads of the block together.
struct KeepSums {
  static constexpr bool kSeesTile = false;
  __device__ float operator()(float sum, int64_t /*m*/, int64_t /*n*/) const { return sum; }
};

// target (m, n) = left right, as the epilogue finishes it. Grid (tiles), those of one column after another, so that
// neighbouring blocks read the same part of the right operand. kLeftRuns, kRightRuns: whether an operand's depth runs
// along memory.
template <bool kLeftRuns, bool kRightRuns, int kWidth, typename Epilogue>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    multiply_tiles(Product product, Epilogue epilogue, float* target) {
  using LeftCarrier = TileCarrier<kLeftRuns, kBlockM, kWidth>;
  using RightCarrier = TileCarrier<kRightRuns, kBlockN, kWidth>;
  __shared__ __align__(16) float left_tiles[2][kBlockK][LeftCarrier::kStride];
  __shared__ __align__(16) float right_tiles[2][kBlockK][RightCarrier::kStride];
  const int64_t tiles_m = (product.m + kBlockM - 1) / kBlockM;
  const TilePlace place = {blockIdx.x % tiles_m * kBlockM, blockIdx.x / tiles_m * kBlockN,
                           static_cast<int>(threadIdx.x) / (kBlockN / kThreadN),
                           static_cast<int>(threadIdx.x) % (kBlockN / kThreadN)};
  __shared__ int64_t origin[2];  // read again at every flush: addresses worked out beforehand would take registers
  if (threadIdx.x == 0) {
    origin[0] = place.first_m;
    origin[1] = place.first_n;
  }
  LeftCarrier left(product.left, place.first_m, product.m, product.k);
  RightCarrier right(product.right, place.first_n, product.n, product.k);
  float sums[kThreadM][kThreadN] = {};

  left.load(product.k);
  right.load(product.k);
  int buffer = 0;
  int64_t flush_at = product.k - kPartialDepth;  // what is left of the depth when sums go to the target
  for (int64_t depth_left = product.k; depth_left > 0; depth_left -= kBlockK) {
    left.store(left_tiles[buffer]);
    right.store(right_tiles[buffer]);
    __syncthreads();  // also says that every thread is done with the buffer that the next step fills
    if (depth_left > kBlockK) {
      left.load(depth_left - kBlockK);
      right.load(depth_left - kBlockK);
    }
#pragma unroll kUnroll
    for (int k = 0; k < kBlockK; ++k) {
      float left_fragment[kThreadM];
      float right_fragment[kThreadN];
      read_fragment<kBlockM, kThreadM>(left_tiles[buffer][k], place.thread_m, left_fragment);
      read_fragment<kBlockN, kThreadN>(right_tiles[buffer][k], place.thread_n, right_fragment);
#pragma unroll
      for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) sums[i][j] += left_fragment[i] * right_fragment[j];
      }
    }
    buffer ^= 1;
    if (depth_left - kBlockK != flush_at || flush_at <= 0) continue;
    const TilePlace again = {origin[0], origin[1], place.thread_m, place.thread_n};
    if (flush_at + kPartialDepth < product.k) add_target<kWidth>(target, product, again, sums);
    store_target<kWidth>(sums, product, again, KeepSums(), target);
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadN; ++j) sums[i][j] = 0.0f;
    }
    flush_at -= kPartialDepth;
  }

  if (product.k > kPartialDepth) add_target<kWidth>(target, product, place, sums);
  store_target<kWidth>(sums, product, place, epilogue, target);
  if constexpr (Epilogue::kSeesTile) epilogue.see_tile(target, place);
}

template <bool kLeftRuns, bool kRightRuns, typename Epilogue>
LaunchStatus launch_product(const Product& product, const Epilogue& epilogue, float* target, int device,
                            void* stream_handle) {
  if (product.m == 0 || product.n == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned tiles = grid_for(ceil_div(product.m, kBlockM) * ceil_div(product.n, kBlockN));
  if (reads_as_vectors(product.left, kLeftRuns ? product.k : product.m) &&
      reads_as_vectors(product.right, kRightRuns ? product.k : product.n) && reads_as_vectors(target, product.n)) {
    multiply_tiles<kLeftRuns, kRightRuns, 4><<<tiles, kTileThreads, 0, stream>>>(product, epilogue, target);
  } else {
    multiply_tiles<kLeftRuns, kRightRuns, 1><<<tiles, kTileThreads, 0, stream>>>(product, epilogue, target);
  }
  return launched("multiply_tiles");
}

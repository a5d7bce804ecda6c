// Matrix products in float32: a block multiplies a kBlockM x kBlockN tile in steps of kBlockK through shared memory, a
// thread holds kThreadM x kThreadN of it in registers. While one step is multiplied, the next is on its way from global
// memory; two buffers in shared memory make one barrier a step enough. What lies outside the matrices counts as 0.

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

// target (m, n) = left right, plus biases where kWithBiases. Grid (tiles), those of one column after another, so that
// neighbouring blocks read the same part of the right operand. kLeftRuns, kRightRuns: whether an operand's depth runs
// along memory.
template <bool kLeftRuns, bool kRightRuns, bool kWithBiases, int kWidth>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    multiply_tiles(Product product, Biases biases, float* __restrict__ target) {
  using LeftCarrier = TileCarrier<kLeftRuns, kBlockM, kWidth>;
  using RightCarrier = TileCarrier<kRightRuns, kBlockN, kWidth>;
  __shared__ __align__(16) float left_tiles[2][kBlockK][LeftCarrier::kStride];
  __shared__ __align__(16) float right_tiles[2][kBlockK][RightCarrier::kStride];
  const int64_t tiles_m = (product.m + kBlockM - 1) / kBlockM;
  const int64_t first_m = blockIdx.x % tiles_m * kBlockM;
  const int64_t first_n = blockIdx.x / tiles_m * kBlockN;
  const int thread_m = threadIdx.x / (kBlockN / kThreadN);
  const int thread_n = threadIdx.x % (kBlockN / kThreadN);
  LeftCarrier left(product.left, first_m, product.m, product.k);
  RightCarrier right(product.right, first_n, product.n, product.k);
  float sums[kThreadM][kThreadN] = {};

  left.load(product.k);
  right.load(product.k);
  int buffer = 0;
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
      read_fragment<kBlockM, kThreadM>(left_tiles[buffer][k], thread_m, left_fragment);
      read_fragment<kBlockN, kThreadN>(right_tiles[buffer][k], thread_n, right_fragment);
#pragma unroll
      for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) sums[i][j] += left_fragment[i] * right_fragment[j];
      }
    }
    buffer ^= 1;
  }

#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
    const int64_t m = first_m + tile_position<kBlockM, kThreadM>(thread_m, i);
    if (m >= product.m) continue;
#pragma unroll
    for (int j = 0; j < kThreadN; j += kWidth) {
      const int64_t n = first_n + tile_position<kBlockN, kThreadN>(thread_n, j);
      if (n >= product.n) continue;
      float values[kWidth];
#pragma unroll
      for (int index = 0; index < kWidth; ++index) {
        values[index] = sums[i][j + index];
        if constexpr (kWithBiases) {
          const float added = biases.added[m * biases.row_stride + (n + index) * biases.column_stride];
          values[index] = (values[index] + biases.linear[n + index]) + added;
        }
      }
      store_vector<kWidth>(target + m * product.n + n, values);
    }
  }
}

template <bool kLeftRuns, bool kRightRuns, bool kWithBiases>
LaunchStatus launch_product(const Product& product, const Biases& biases, float* target, int device,
                            void* stream_handle) {
  if (product.m == 0 || product.n == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned tiles = grid_for(ceil_div(product.m, kBlockM) * ceil_div(product.n, kBlockN));
  if (reads_as_float4(product.left, kLeftRuns ? product.k : product.m) &&
      reads_as_float4(product.right, kRightRuns ? product.k : product.n) && reads_as_float4(target, product.n)) {
    multiply_tiles<kLeftRuns, kRightRuns, kWithBiases, 4><<<tiles, kTileThreads, 0, stream>>>(product, biases, target);
  } else {
    multiply_tiles<kLeftRuns, kRightRuns, kWithBiases, 1><<<tiles, kTileThreads, 0, stream>>>(product, biases, target);
  }
  return launched("multiply_tiles");
}

LaunchStatus launch_linear(const Product& product, const Biases& biases, float* z, int device, void* stream) {
  return launch_product<true, true, true>(product, biases, z, device, stream);
}

LaunchStatus launch_input_gradient(const Product& product, float* dx, int device, void* stream) {
  return launch_product<true, false, false>(product, Biases{}, dx, device, stream);
}

LaunchStatus launch_weight_gradient(const Product& product, float* dweight, int device, void* stream) {
  return launch_product<false, false, false>(product, Biases{}, dweight, device, stream);
}

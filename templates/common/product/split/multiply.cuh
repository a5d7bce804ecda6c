// A product in float32's accuracy by tensor cores: high high + high low + low high of the halves in tiles.cuh. What is
// left out, low low, is below float32's rounding.
//
// Every multiprocessor has one block and works on one kTile x kTile tile after another. One thread copies, two
// warpgroups multiply 64 rows each; stages of shared memory pass between them, by a barrier for "full" and one for
// "empty" each. A cluster of kClusterM x kClusterN blocks works on neighbouring tiles: each block copies a share of
// what several need, to all of them, since reading it several times is more than L2 has to give.
//
// Tensor cores cut off what does not fit a sum's float32, so that long sums come out too small. Registers take their
// sums over every kPromotedSteps steps, and add them up with rounding.

constexpr int kCluster = kClusterM * kClusterN;
constexpr int kLeftShare = kTileBytes / kClusterN;
constexpr int kRightShare = kTileBytes / kClusterM;
constexpr int kStageBytes = 2 * kTileBytes;
constexpr int kMultiplyThreads = 384;
constexpr int kMultiplyShared = kStages * kStageBytes + 1024;  // tiles begin at multiples of 1024
constexpr int kMultiplyWarps = 8;                                   // of a block, that read its stages
constexpr int kPeers = kClusterM + kClusterN - 1;              // blocks that copy to a block, itself among them
constexpr int kBandTiles = 8;                                  // rows of tiles that are worked on together
constexpr int kBand = kClusterM < kBandTiles ? kBandTiles / kClusterM : 1;

struct SplitOperand {
  const uint8_t* tiles;
  const unsigned* magnitudes;  // of rows
  const float* values;         // value (row, depth) lies at row * row_stride + depth * depth_stride
  int64_t row_stride;
  int64_t depth_stride;
};

struct SplitProduct {
  SplitOperand left;
  SplitOperand right;
  int64_t m;
  int64_t n;
  int64_t k;
  int steps;
  int clusters_m;  // tiles of clusters along m
  int clusters_n;
  LaterRows later;
};

// The tile of a block in its cluster's item. Bands of rows one after another: what a band needs of the left matrix, and
// of the right one meanwhile, stays in L2.
struct TileOf {
  int64_t m;
  int64_t n;

  __device__ TileOf(const SplitProduct& product, int item, int rank) {
    const int band = item / (kBand * product.clusters_n);
    const int left = product.clusters_m - band * kBand;
    const int height = left < kBand ? left : kBand;
    const int within = item - band * kBand * product.clusters_n;
    m = int64_t{band * kBand + within % height} * kClusterM + rank % kClusterM;
    n = int64_t{within / height} * kClusterN + rank / kClusterM;
  }
};

// A ring of stages, seen by one who goes along it.
struct RingPlace {
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

// Rows with infinities or NaN: as float32 has it, one value at a time.
__device__ inline float plain_product(const SplitProduct& product, int64_t m, int64_t n) {
  const float* const left = product.left.values + m * product.left.row_stride;
  const float* const right = product.right.values + n * product.right.row_stride;
  float sum = 0.0f;
#pragma unroll 1
  for (int64_t k = 0; k < product.k; ++k) {
    sum += left[k * product.left.depth_stride] * right[k * product.right.depth_stride];
  }
  return sum;
}

// sum / 2^exponent in two steps, either of which is a normal float.
__device__ inline float unscaled(float sum, int exponent) {
  const int half = exponent / 2;
  return sum * __int_as_float((127 - half) << 23) * __int_as_float((127 - (exponent - half)) << 23);
}

// Writes a thread's share of 64 rows of a tile: wgmma gives it two rows, and of each two neighbours in every eight.
__device__ inline void store_sums(const SplitProduct& product, const float (&sums)[64], int64_t first_m,
                                  int64_t first_n, float* target) {
  constexpr int kColumns = 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int64_t column = first_n + lane % 4 * 2;
  unsigned of_columns[kColumns];
  unsigned largest = 0;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const int64_t n = column + j / 2 * 8 + j % 2;
    of_columns[j] = n < product.n ? __ldcg(product.right.magnitudes + n) : 0;  // may be as young as this launch
    largest = max(largest, of_columns[j]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t m = first_m + warp * 16 + lane / 4 + half * 8;
    if (m >= product.m) continue;
    const unsigned of_row = product.left.magnitudes[m];
    float* const line = target + m * product.n;
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      const int64_t n = column + j * 4;
      float values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        values[i] = unscaled(sums[j * 2 + half * 2 + i], scale_exponent(of_row) + scale_exponent(of_columns[j + i]));
      }
      if (product.n % 2 == 0) {
        if (n < product.n) *reinterpret_cast<float2*>(line + n) = make_float2(values[0], values[1]);
      } else {
        if (n < product.n) line[n] = values[0];
        if (n + 1 < product.n) line[n + 1] = values[1];
      }
    }
    if (max(largest, of_row) < kInfinity) continue;
#pragma unroll 1
    for (int j = 0; j < kColumns; ++j) {
      const int64_t n = column + j / 2 * 8 + j % 2;
      if (n >= product.n) break;
      const unsigned either = max(of_row, product.right.magnitudes[n]);
      if (either > kInfinity) line[n] = __int_as_float(0x7fc00000);
      if (either == kInfinity) line[n] = plain_product(product, m, n);
    }
  }
}

struct StageBarriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// Copies this block's shares of every stage, by one thread.
__device__ inline void copy_stages(const SplitProduct& product, uint8_t* ring, StageBarriers& barriers, int rank) {
  const int rank_m = rank % kClusterM;
  const int rank_n = rank / kClusterM;
  unsigned same_m = 0;  // blocks that need this block's share of the left tile
#pragma unroll
  for (int i = 0; i < kClusterN; ++i) same_m |= 1u << (rank_m + i * kClusterM);
  const unsigned same_n = ((1u << kClusterM) - 1) << rank_n * kClusterM;
  RingPlace place;
  for (int item = blockIdx.x / kCluster; item < product.clusters_m * product.clusters_n; item += gridDim.x / kCluster) {
    const TileOf tile(product, item, rank);
    const uint8_t* left = product.left.tiles + tile.m * product.steps * kTileBytes + rank_n * kLeftShare;
    const uint8_t* right = product.right.tiles + tile.n * product.steps * kTileBytes + rank_m * kRightShare;
    await_tile(product.later, tile.n);
    for (int step = 0; step < product.steps; ++step) {
      uint64_t* const full = barriers.full + place.stage;
      uint8_t* const stage = ring + place.stage * kStageBytes;
      barrier_wait(barriers.empty + place.stage, place.phase ^ 1);
      barrier_expect(full, kStageBytes);
      bulk_share<kClusterN>(stage + rank_n * kLeftShare, left, kLeftShare, full, static_cast<uint16_t>(same_m));
      bulk_share<kClusterM>(stage + kTileBytes + rank_m * kRightShare, right, kRightShare, full,
                            static_cast<uint16_t>(same_n));
      left += kTileBytes;
      right += kTileBytes;
      place.advance();
    }
  }
}

// Gives a stage back to all who copy to it: one lane each.
__device__ __forceinline__ void release_stage(uint32_t empty_of_peer, int stage) {
  if (threadIdx.x % 32 < kPeers) {
    barrier_arrive_in(empty_of_peer + stage * static_cast<uint32_t>(sizeof(uint64_t)));
  }
}

// For lane i: the i-th of the blocks that share a tile of either matrix with this one.
__device__ inline int peer_of(int rank, int lane) {
  if (lane < kClusterM) return rank / kClusterM * kClusterM + lane;
  const int other = lane - kClusterM;
  return lane < kPeers ? rank % kClusterM + (other < rank / kClusterM ? other : other + 1) * kClusterM : rank;
}

// Multiplies 64 rows of this block's tiles, by one warpgroup.
__device__ inline void multiply_stages(const SplitProduct& product, uint8_t* ring, StageBarriers& barriers, int rank,
                                       int half, float* target) {
  constexpr uint32_t kLow = kStep * 2 / 16;  // from high halves to low ones, as descriptors count
  constexpr uint32_t kNext = 16 * 2 / 16;    // 16 depths on
  const uint32_t empty_of_peer = address_in(barriers.empty, peer_of(rank, static_cast<int>(threadIdx.x) % 32));
  const uint32_t ring_address = shared_address(ring);
  RingPlace place;
  for (int item = blockIdx.x / kCluster; item < product.clusters_m * product.clusters_n; item += gridDim.x / kCluster) {
    const TileOf tile(product, item, rank);
    float sums[64] = {};
    float promoted[64];
    for (int first = 0; first < product.steps; first += kPromotedSteps) {
      const int left_steps = product.steps - first;
      const int count = left_steps < kPromotedSteps ? left_steps : kPromotedSteps;
      int before = 0;
#pragma unroll 1
      for (int step = 0; step < count; ++step) {
        barrier_wait(barriers.full + place.stage, place.phase);
        const uint32_t stage = ring_address + place.stage * kStageBytes;
        const uint64_t left = tile_descriptor(stage + half * (kTileBytes / 2));
        const uint64_t right = tile_descriptor(stage + kTileBytes);
        begin_products();
#pragma unroll
        for (int k = 0; k < kStep / 16; ++k) {
          multiply_halves(promoted, left + k * kNext, right + kLow + k * kNext, step + k);
          multiply_halves(promoted, left + kLow + k * kNext, right + k * kNext, 1);
          multiply_halves(promoted, left + k * kNext, right + k * kNext, 1);
        }
        commit_products();
        if (step > 0) {
          await_products<1>();
          release_stage(empty_of_peer, before);
        }
        before = place.stage;
        place.advance();
      }
      await_products<0>();
      release_stage(empty_of_peer, before);
#pragma unroll
      for (int i = 0; i < 64; ++i) sums[i] += promoted[i];
    }
    store_sums(product, sums, tile.m * kTile + half * 64, tile.n * kTile, target);
  }
}

// Grid (blocks of clusters that run at the same time): see above.
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kMultiplyThreads, 1)
    multiply_split(const __grid_constant__ SplitProduct product, float* target) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t shared[];
  __shared__ StageBarriers barriers;
  uint8_t* const ring = shared + (1024 - shared_address(shared) % 1024) % 1024;
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(barriers.full + i, 1);
      barrier_init(barriers.empty + i, kMultiplyWarps * kPeers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();
  if (threadIdx.x / 128 == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    if (threadIdx.x == 0) copy_stages(product, ring, barriers, rank);
    if (threadIdx.x >= 32) {
      split_later_rows(product.later, product.right.values, product.n, product.k, product.steps);
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    multiply_stages(product, ring, barriers, rank, static_cast<int>(threadIdx.x) / 128 - 1, target);
  }
  cluster_sync();  // nobody leaves while others copy to it, or tell it of an empty stage
#endif
}

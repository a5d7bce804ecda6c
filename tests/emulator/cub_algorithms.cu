// CUB's algorithms of blocks and warps.
#include <cub/config.cuh>
#include <cub/block/block_raking_layout.cuh>
#include <cub/cub.cuh>
#include <cub/util_ptx.cuh>
#include <cub/util_type.cuh>

#define TEST extern "C"

// ---- The order of sums, which decides bits: test_cub.py has what an H100 computed ------------------------------------

template <int n, cub::BlockReduceAlgorithm algorithm>
__global__ void sums(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, n, algorithm>;
  __shared__ typename Reduce::TempStorage storage;
  const int thread = threadIdx.x;
  float items[5];
  for (int i = 0; i < 5; ++i) items[i] = x[thread * 5 + i];
  const float all = Reduce(storage).Sum(x[thread]);
  __syncthreads();
  const float most = Reduce(storage).Sum(x[thread], n - 7);
  __syncthreads();
  const float of_items = Reduce(storage).Sum(items);
  __syncthreads();
  const float halves = Reduce(storage).Reduce(x[thread], [](float a, float b) { return a + b / 2; });
  if (thread == 0) {
    y[0] = all;
    y[1] = most;
    y[2] = of_items;
    y[3] = halves;
  }
}
template <int n, cub::BlockScanAlgorithm algorithm>
__global__ void prefix_sums(const float* x, float* y) {
  using Scan = cub::BlockScan<float, n, algorithm>;
  __shared__ typename Scan::TempStorage storage;
  const int thread = threadIdx.x;
  float items[4], result, all;
  for (int i = 0; i < 4; ++i) items[i] = x[thread * 4 + i];
  Scan(storage).InclusiveSum(x[thread], result);
  __syncthreads();
  y[thread] = result;
  Scan(storage).ExclusiveSum(x[thread], result, all);
  __syncthreads();
  y[n + thread] = result;
  y[2 * n + thread] = all;
  Scan(storage).InclusiveSum(items, items);
  __syncthreads();
  for (int i = 0; i < 4; ++i) y[3 * n + thread * 4 + i] = items[i];
  Scan(storage).ExclusiveScan(items, items, 0.5f, [](float a, float b) { return a + b; });
  for (int i = 0; i < 4; ++i) y[7 * n + thread * 4 + i] = items[i];
}
template <int n>
int run_sums(int algorithm, const float* x, float* y) {
  if (algorithm == 0) sums<n, cub::BLOCK_REDUCE_WARP_REDUCTIONS><<<1, n>>>(x, y);
  if (algorithm == 1) sums<n, cub::BLOCK_REDUCE_RAKING><<<1, n>>>(x, y);
  if (algorithm == 2) sums<n, cub::BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY><<<1, n>>>(x, y);
  if (algorithm == 3) prefix_sums<n, cub::BLOCK_SCAN_RAKING><<<1, n>>>(x, y);
  if (algorithm == 4) prefix_sums<n, cub::BLOCK_SCAN_WARP_SCANS><<<1, n>>>(x, y);
  return 0;
}
TEST void run_sums(int threads, int algorithm, const float* x, float* y) {
  if (threads == 256) run_sums<256>(algorithm, x, y);
  if (threads == 100) run_sums<100>(algorithm, x, y);
  if (threads == 16) run_sums<16>(algorithm, x, y);
  if (threads == 512) run_sums<512>(algorithm, x, y);
}

// ---- Loads, stores and exchanges -------------------------------------------------------------------------------------

constexpr int kThreads = 64, kItems = 4, kAll = kThreads * kItems;

template <cub::BlockLoadAlgorithm loads, cub::BlockStoreAlgorithm stores>
__global__ void moved(const int* x, int* y, int count) {
  using Load = cub::BlockLoad<int, kThreads / 2, kItems, loads, 2>;
  using Store = cub::BlockStore<int, kThreads / 2, kItems, stores, 2>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
  } storage;
  int items[kItems];
  if (count == kAll) Load(storage.load).Load(x, items);
  else Load(storage.load).Load(x, items, count, -1);
  __syncthreads();
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const bool is_striped = loads == cub::BLOCK_LOAD_STRIPED;
  for (int i = 0; i < kItems; ++i) items[i] = 1000 * items[i] + (is_striped ? i * kThreads + thread : thread * kItems + i);
  if (count == kAll) Store(storage.store).Store(y, items);
  else Store(storage.store).Store(y, items, count);
}
TEST void run_moved(int which, const int* x, int* y, int count) {
  const dim3 block(kThreads / 2, 2);
  if (which == 0) moved<cub::BLOCK_LOAD_DIRECT, cub::BLOCK_STORE_DIRECT><<<1, block>>>(x, y, count);
  if (which == 1) moved<cub::BLOCK_LOAD_STRIPED, cub::BLOCK_STORE_STRIPED><<<1, block>>>(x, y, count);
  if (which == 2) moved<cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE><<<1, block>>>(x, y, count);
  if (which == 3) moved<cub::BLOCK_LOAD_TRANSPOSE, cub::BLOCK_STORE_TRANSPOSE><<<1, block>>>(x, y, count);
  if (which == 4) moved<cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE><<<1, block>>>(x, y, count);
}

__global__ void exchanged(int* y) {
  using Exchange = cub::BlockExchange<int, kThreads, kItems>;
  using WarpExchange = cub::WarpExchange<int, kItems, 16>;
  __shared__ typename Exchange::TempStorage storage;
  __shared__ typename WarpExchange::TempStorage of_warp[kThreads / 16];
  const int first = threadIdx.x * kItems;
  int items[kItems], ranks[kItems];
  bool valid[kItems];
  const auto begin = [&](int factor) {
    __syncthreads();
    for (int i = 0; i < kItems; ++i) {
      items[i] = first + i;
      ranks[i] = (first + i) * factor % kAll;
      valid[i] = i != 2;
    }
  };
  const auto put = [&](int row) {
    for (int i = 0; i < kItems; ++i) y[row * kAll + first + i] = items[i];
  };
  begin(1), Exchange(storage).BlockedToStriped(items), put(0);
  begin(1), Exchange(storage).StripedToBlocked(items), put(1);
  begin(1), Exchange(storage).BlockedToWarpStriped(items), put(2);
  begin(1), Exchange(storage).WarpStripedToBlocked(items), put(3);
  begin(3), Exchange(storage).ScatterToBlocked(items, ranks), put(4);
  begin(3), Exchange(storage).ScatterToStriped(items, ranks), put(5);
  begin(1), Exchange(storage).ScatterToStripedFlagged(items, ranks, valid), put(6);
  begin(1), WarpExchange(of_warp[threadIdx.x / 16]).BlockedToStriped(items, items), put(7);
  __syncwarp();
  WarpExchange(of_warp[threadIdx.x / 16]).StripedToBlocked(items, items), put(8);
}
TEST void run_exchanged(int* y) { exchanged<<<1, kThreads>>>(y); }

// ---- Sorting, counting, flags ----------------------------------------------------------------------------------------

template <typename Key>
__global__ void sorted(const Key* keys, Key* to, int* order, bool is_descending, bool is_striped, int first, int last) {
  using Sort = cub::BlockRadixSort<Key, kThreads, kItems, int>;
  __shared__ typename Sort::TempStorage storage;
  Key own[kItems];
  int numbers[kItems];
  for (int i = 0; i < kItems; ++i) {
    numbers[i] = threadIdx.x * kItems + i;
    own[i] = keys[numbers[i]];
  }
  if (is_descending && is_striped) Sort(storage).SortDescendingBlockedToStriped(own, numbers, first, last);
  else if (is_descending) Sort(storage).SortDescending(own, numbers, first, last);
  else if (is_striped) Sort(storage).SortBlockedToStriped(own, numbers, first, last);
  else Sort(storage).Sort(own, numbers, first, last);
  for (int i = 0; i < kItems; ++i) {
    const int place = is_striped ? i * kThreads + threadIdx.x : threadIdx.x * kItems + i;
    to[place] = own[i];
    order[place] = numbers[i];
  }
}
TEST void run_sorted_ints(const int* keys, int* to, int* order, int is_descending, int is_striped, int first, int last) {
  sorted<<<1, kThreads>>>(keys, to, order, is_descending != 0, is_striped != 0, first, last);
}
TEST void run_sorted_floats(const float* keys, float* to, int* order, int is_descending, int is_striped) {
  sorted<<<1, kThreads>>>(keys, to, order, is_descending != 0, is_striped != 0, 0, 32);
}

__global__ void counted(const int* x, unsigned* bins, int* flags) {
  using Histogram = cub::BlockHistogram<unsigned char, kThreads, kItems, 10>;
  using Discontinuity = cub::BlockDiscontinuity<int, kThreads>;
  __shared__ typename Histogram::TempStorage of_histogram;
  __shared__ typename Discontinuity::TempStorage of_flags;
  __shared__ unsigned counts[10];
  unsigned char digits[kItems];
  int items[kItems], heads[kItems], tails[kItems];
  for (int i = 0; i < kItems; ++i) {
    items[i] = x[threadIdx.x * kItems + i];
    digits[i] = static_cast<unsigned char>(items[i] % 10);
  }
  Histogram(of_histogram).Histogram(digits, counts);
  __syncthreads();
  Histogram(of_histogram).Composite(digits, counts);
  __syncthreads();
  if (threadIdx.x < 10) bins[threadIdx.x] = counts[threadIdx.x];
  Discontinuity(of_flags).FlagHeadsAndTails(heads, tails, items, cub::Inequality());
  for (int i = 0; i < kItems; ++i) flags[threadIdx.x * kItems + i] = heads[i] + 2 * tails[i];
  __syncthreads();
  Discontinuity(of_flags).FlagHeads(heads, items, cub::Inequality(), x[0]);
  for (int i = 0; i < kItems; ++i) flags[kAll + threadIdx.x * kItems + i] = heads[i];
}
TEST void run_counted(const int* x, unsigned* bins, int* flags) { counted<<<1, kThreads>>>(x, bins, flags); }

// ---- Warps, operators, and storage that nobody gives -----------------------------------------------------------------

struct Running {
  int total;
  __device__ int operator()(int of_block) {
    const int before = total;
    total += of_block;
    return before;
  }
};
__global__ void of_warps(const int* x, int* y) {
  using Reduce = cub::WarpReduce<int>;
  using Small = cub::WarpReduce<int, 8>;
  using Scan = cub::WarpScan<int>;
  using Best = cub::KeyValuePair<int, int>;
  __shared__ typename Reduce::TempStorage reduce[2];
  __shared__ typename Small::TempStorage small[8];
  __shared__ typename Scan::TempStorage scan[2];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, value = x[thread];
  const auto put = [&](int row, bool is_defined, int result) { y[row * kThreads + thread] = is_defined ? result : 0; };
  put(0, lane == 0, Reduce(reduce[warp]).Sum(value));
  put(1, lane == 0, Reduce(reduce[warp]).Reduce(value, cub::Max(), 13));
  put(2, lane % 8 == 0, Small(small[thread / 8]).Reduce(value, cuda::minimum<>()));
  put(3, lane == 0 || lane % 7 == 3, Reduce(reduce[warp]).HeadSegmentedSum(value, lane % 7 == 3));
  put(4, lane == 0 || lane % 7 == 4, Reduce(reduce[warp]).TailSegmentedSum(value, lane % 7 == 3));
  int inclusive, exclusive, all;
  Scan(scan[warp]).InclusiveSum(value, inclusive, all);
  put(5, true, inclusive), put(6, true, all);
  Scan(scan[warp]).ExclusiveScan(value, exclusive, -1, cub::Max());
  put(7, true, exclusive);
  Scan(scan[warp]).Scan(value, inclusive, exclusive, 5, cub::Sum());
  put(8, true, 1000 * inclusive + exclusive), put(9, true, Scan(scan[warp]).Broadcast(value, 3));
  const Best best = cub::BlockReduce<Best, kThreads>().Reduce(Best{thread, value}, cub::ArgMax());
  put(10, thread == 0, 1000 * best.key + best.value);
  Running running{7};
  for (int i = 0; i < 2; ++i) {
    cub::BlockScan<int, kThreads>().ExclusiveSum(value, exclusive, running);
    __syncthreads();
    put(11 + i, true, exclusive);
  }
}
TEST void run_of_warps(const int* x, int* y) { of_warps<<<1, kThreads>>>(x, y); }

// ---- What sources of their own algorithms take of CUB ----------------------------------------------------------------

struct Pair {
  double value;
  int lane;
};

template <int logical>
__global__ void shuffled(const int* x, int* y) {
  const int thread = cub::RowMajorTid(blockDim.x, 1, 1), lane = cub::LaneId(), own = lane / logical;
  const unsigned mask = cub::WarpMask<logical>(own);
  y[thread] = cub::ShuffleUp<logical>(x[thread], 3, 0, mask);
  y[96 + thread] = cub::ShuffleDown<logical>(x[thread], 2, logical - 1, mask);
  const Pair pair = cub::ShuffleIndex<logical>(Pair{x[thread] + 0.5, lane}, 1, mask);
  y[192 + thread] = pair.value * 2 + pair.lane * 1000;
  y[288 + thread] = cub::WarpId() * 100 + __popc(cub::LaneMaskLt()) + 1000 * __popc(cub::LaneMaskGe());
}
TEST void run_shuffled(int logical, const int* x, int* y) {
  if (logical == 32) shuffled<32><<<1, 96>>>(x, y);
  else shuffled<8><<<1, 96>>>(x, y);
}

// Sums from each thread to the last one, by the threads of one warp.
template <int n>
__global__ void suffix_sums(const int* x, int* y) {
  using Layout = cub::BlockRakingLayout<int, n>;
  __shared__ typename Layout::TempStorage storage;
  *Layout::PlacementPtr(storage, threadIdx.x) = x[threadIdx.x];
  cub::CTA_SYNC();
  if (threadIdx.x < Layout::RAKING_THREADS) {
    int* const segment = Layout::RakingPtr(storage, threadIdx.x);
    int sum = 0;
    for (int i = 0; i < Layout::SEGMENT_LENGTH; ++i) sum += segment[i];
    const int own = sum;
    for (int step = 1; step < CUB_PTX_WARP_THREADS; step *= 2) {
      const int more = cub::ShuffleDown<32>(sum, step, 31, cub::WarpMask<32>(0));
      if (threadIdx.x + step < Layout::RAKING_THREADS) sum += more;
    }
    int behind = sum - own;
    for (int i = Layout::SEGMENT_LENGTH - 1; i >= 0; --i) behind = segment[i] += behind;
  }
  cub::CTA_SYNC();
  y[threadIdx.x] = *Layout::PlacementPtr(storage, threadIdx.x);
}
TEST void run_suffix_sums(int threads, const int* x, int* y) {
  static_assert(CUB_VERSION >= 200000 && cub::Log2<33>::VALUE == 6 && cub::PowerOfTwo<64>::VALUE);
  if (threads == 64) suffix_sums<64><<<1, 64>>>(x, y);
  else suffix_sums<256><<<1, 256>>>(x, y);
}

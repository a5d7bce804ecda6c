// Cooperative groups, compared with what each operation is defined to give.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <utility>

#define TEST extern "C"
namespace cg = cooperative_groups;

struct Pair {
  double value;
  int where;
};

// Sixteen results a thread, one after the other for all threads.
template <int Size>
__global__ void tile_operations(int* out) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<Size> tile = cg::tiled_partition<Size>(block);
  const int thread = block.thread_rank(), all = block.size(), rank = tile.thread_rank();
  int next = thread;
  const auto put = [&](int value) {
    out[next] = value;
    next += all;
  };
  put(rank + 100 * tile.meta_group_rank() + 10000 * tile.meta_group_size() + 1000000 * tile.num_threads());
  put(tile.shfl(thread, 1 % Size));
  put(tile.shfl_up(thread, 1));
  put(tile.shfl_down(thread, 2));
  put(tile.shfl_xor(thread, Size / 2));
  put(tile.any(rank == Size - 1 && thread < Size) + 10 * tile.all(thread < all - 1));
  put(tile.ballot(rank % 3 == 0));
  put(tile.match_any(rank / 3));
  int same = 0;
  const unsigned matched = tile.match_all(thread / Size, same);
  put(same * (Size == 32 ? matched == ~0u : matched == (1u << Size) - 1));
  put(cg::reduce(tile, thread, cg::plus<int>()));
  put(cg::reduce(tile, thread * 7 % 13, cg::less<int>()) + 100 * cg::reduce(tile, thread * 7 % 13, cg::greater<int>()));
  put(cg::reduce(tile, 1u << rank % 8, cg::bit_or<unsigned>()) +
      1000 * cg::reduce(tile, 0xffu ^ 1u << rank % 8, cg::bit_and<unsigned>()));
  put(cg::inclusive_scan(tile, thread));
  put(cg::exclusive_scan(tile, thread) + 100000 * cg::exclusive_scan(tile, rank % 5, cg::greater<int>()) * (rank > 0));
  const Pair largest = cg::reduce(tile, Pair{static_cast<double>(thread * 5 % 11), thread}, [](Pair a, Pair b) {
    return a.value > b.value || (a.value == b.value && a.where < b.where) ? a : b;
  });
  put(largest.where + 1000 * static_cast<int>(largest.value));
  tile.sync();
  auto half = cg::tiled_partition<Size / 2>(tile);
  put(half.meta_group_rank() + 10 * half.meta_group_size() + 100 * cg::reduce(half, thread, cg::plus<int>()));
}
TEST void run_tiles(int* out, int size, int threads) {
  if (size == 32) tile_operations<32><<<1, threads>>>(out);
  if (size == 16) tile_operations<16><<<1, dim3(threads / 4, 2, 2)>>>(out);
  if (size == 4) tile_operations<4><<<1, threads>>>(out);
  if (size == 2) tile_operations<2><<<1, threads>>>(out);
}

__device__ int sum_in(cg::thread_group group, int* scratch, int value) {
  const int rank = group.thread_rank();
  for (int i = group.size() / 2; i > 0; i /= 2) {
    scratch[rank] = value;
    group.sync();
    if (rank < i) value += scratch[rank + i];
    group.sync();
  }
  return value;
}
__global__ void any_group(int* out) {
  __shared__ int scratch[128];
  auto block = cg::this_thread_block();
  const int all = sum_in(block, scratch, threadIdx.x);
  scratch[threadIdx.x] = threadIdx.x;
  auto token = block.barrier_arrive();
  const int own = threadIdx.x * 1000;
  block.barrier_wait(std::move(token));
  out[17 + threadIdx.x] = own + scratch[127 - threadIdx.x];
  block.sync();
  cg::thread_group part = cg::tiled_partition(block, 8);
  const int few = sum_in(part, &scratch[threadIdx.x / 8 * 8], threadIdx.x);
  if (threadIdx.x == 0) out[0] = all;
  if (part.thread_rank() == 0) out[1 + threadIdx.x / 8] = few;
  cg::sync(block);
}
TEST void run_any_group(int* out) { any_group<<<1, 128>>>(out); }

// Six results a thread.
__global__ void coalesced(int* out) {
  int* const mine = out + 6 * threadIdx.x;
  if (threadIdx.x % 3 == 1) {
    auto active = cg::coalesced_threads();
    mine[0] = active.size() * 100 + active.thread_rank();
    mine[1] = active.shfl(static_cast<int>(threadIdx.x), 2);
    mine[2] = active.shfl_up(static_cast<int>(threadIdx.x), 1) * 100 + active.shfl_down(static_cast<int>(threadIdx.x), 1);
    mine[3] = cg::reduce(active, static_cast<int>(threadIdx.x), cg::plus<int>());
    mine[4] = active.ballot(active.thread_rank() % 2) + 100000 * active.any(threadIdx.x == 100);
    auto parts = cg::tiled_partition(active, 4);
    mine[5] = cg::inclusive_scan(parts, 1) + 10 * parts.meta_group_rank() + 100 * parts.meta_group_size();
  }
}
TEST void run_coalesced(int* out) { coalesced<<<1, 64>>>(out); }

// The lanes of one label count together with a single atomic operation.
__global__ void count_labels(const int* labels, int* counts, int* evens, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  auto active = cg::coalesced_threads();
  auto alike = cg::labeled_partition(active, labels[i]);
  if (alike.thread_rank() == 0) atomicAdd(&counts[labels[i]], static_cast<int>(alike.size()));
  auto even = cg::binary_partition(active, labels[i] % 2 == 0);
  cg::invoke_one(even, [&] { atomicAdd(&evens[labels[i] % 2], static_cast<int>(even.num_threads())); });
}
TEST void run_count_labels(const int* labels, int* counts, int* evens, int n) {
  count_labels<<<(n + 95) / 96, 96>>>(labels, counts, evens, n);
}

__global__ void indices(unsigned long long* out) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  const unsigned long long rank = grid.thread_rank();
  out[rank] = grid.block_rank() * 1000 + block.thread_rank() + (grid.size() == grid.num_blocks() * block.size() ? 0 : 1000000);
  if (block.group_index().y != blockIdx.y || block.thread_index().z != threadIdx.z || grid.dim_blocks().x != gridDim.x ||
      block.dim_threads().y != blockDim.y || grid.block_index().z != blockIdx.z || grid.is_valid()) {
    out[rank] = 0;
  }
}
TEST void run_indices(unsigned long long* out) { indices<<<dim3(2, 3, 2), dim3(3, 4, 5)>>>(out); }

__global__ void copies(const float* x, float* y, int n, bool waits) {
  extern __shared__ float tile[];
  cg::thread_block block = cg::this_thread_block();
  cg::memcpy_async(block, tile, x, sizeof(float) * n);
  if (waits) cg::wait(block);
  for (int i = block.thread_rank(); i < n; i += block.size()) y[i] = tile[n - 1 - i];
}
TEST void run_copies(const float* x, float* y, int n, int waits) {
  copies<<<1, 96, n * sizeof(float)>>>(x, y, n, waits != 0);
}

__global__ void some_leave(int* out) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  if (threadIdx.x == 5) {
    out[threadIdx.x] = tile.shfl(1, 0);
  } else {
    out[threadIdx.x] = tile.any(1);
  }
}
TEST void run_some_leave(int* out) { some_leave<<<1, 64>>>(out); }

__global__ void with_attributes(int* out, double amount) {
  const bool together = cg::this_grid().is_valid();
  if (together) cg::this_grid().sync();
  if (threadIdx.x == 0) atomicAdd(out, static_cast<int>(amount) * (together ? 100 : 1));
}
TEST int run_with_attributes(int* out, int blocks, int cooperative, int in_c) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = cooperative;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(32);
  config.attrs = &attribute;
  config.numAttrs = 1;
  if (!in_c) return cudaLaunchKernelEx(&config, with_attributes, out, 3);
  double amount = 3;
  void* arguments[] = {&out, &amount};
  return cudaLaunchKernelExC(&config, (const void*)with_attributes, arguments);
}

// libcu++'s barriers and pipelines, its functions for PTX, and CUDA's C functions for copies. Every kernel doubles and mirrors
// tiles of the block's size.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda_pipeline.h>

#include <utility>

#define TEST extern "C"
namespace cg = cooperative_groups;
namespace cde = cuda::device::experimental;
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kTile = 64;

__global__ void counted(const float* x, float* y, int tiles) {
  __shared__ barrier full;
  __shared__ alignas(16) float tile[kTile];
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&full, block.size());
  block.sync();
  for (int c = 0; c < tiles; ++c) {
    if (c % 2 == 0) cuda::memcpy_async(block, tile, x + c * kTile, cuda::aligned_size_t<16>(sizeof tile), full);
    else cuda::memcpy_async(tile + threadIdx.x, x + c * kTile + threadIdx.x, sizeof(float), full);
    barrier::arrival_token token = full.arrive();
    full.wait(std::move(token));
    y[c * kTile + threadIdx.x] = 2 * tile[kTile - 1 - threadIdx.x];
    full.arrive_and_wait();
  }
}

// Bytes whose alignment nobody promises are copied one by one.
__global__ void bytes(const float* x, float* y, int tiles) {
  __shared__ barrier full;
  __shared__ float tile[kTile];
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&full, block.size());
  block.sync();
  for (int c = 0; c < tiles; ++c) {
    const void* const from = x + c * kTile;
    cuda::memcpy_async(block, static_cast<void*>(tile), from, sizeof tile, full);
    full.arrive_and_wait();
    y[c * kTile + threadIdx.x] = 2 * tile[kTile - 1 - threadIdx.x];
    barrier::arrival_token token = full.arrive();
    while (!full.try_wait_for(std::move(token), cuda::std::chrono::microseconds(1))) {
    }
  }
}

// Half of the threads leave after the first tile.
__global__ void dropped(const float* x, float* y, int tiles) {
  __shared__ barrier written;
  __shared__ float tile[kTile];
  if (threadIdx.x == 0) init(&written, blockDim.x);
  __syncthreads();
  tile[threadIdx.x] = x[threadIdx.x];
  written.arrive_and_wait();
  y[threadIdx.x] = 2 * tile[kTile - 1 - threadIdx.x];
  if (threadIdx.x >= kTile / 2) return written.arrive_and_drop();
  written.arrive_and_wait();
  for (int c = 1; c < tiles; ++c) {
    for (int i = threadIdx.x; i < kTile; i += kTile / 2) tile[i] = x[c * kTile + i];
    written.arrive_and_wait();
    for (int i = threadIdx.x; i < kTile; i += kTile / 2) y[c * kTile + i] = 2 * tile[kTile - 1 - i];
    written.arrive_and_wait();
  }
}

template <int stages>
__global__ void unified(const float* x, float* y, int tiles) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
  __shared__ float tile[stages][kTile];
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  for (int c = 0, fetched = 0; c < tiles; ++c) {
    for (; fetched < tiles && fetched < c + stages; ++fetched) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, tile[fetched % stages], x + fetched * kTile, sizeof tile[0], pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    y[c * kTile + threadIdx.x] = 2 * tile[c % stages][kTile - 1 - threadIdx.x];
    pipe.consumer_release();
  }
}

// The first warp copies, two others compute.
template <bool counts>
__global__ void with_roles(const float* x, float* y, int tiles) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ alignas(16) float tile[2][kTile];
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  const bool produces = threadIdx.x < 32;
  const auto role = produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = counts ? cuda::make_pipeline(block, &state, std::size_t{32}) : cuda::make_pipeline(block, &state, role);
  for (int c = 0; c < tiles; ++c) {
    if (produces) {
      pipe.producer_acquire();
      cuda::memcpy_async(warp, tile[c % 2], x + c * kTile, cuda::aligned_size_t<8>(sizeof tile[0]), pipe);
      pipe.producer_commit();
    } else {
      pipe.consumer_wait();
      y[c * kTile + threadIdx.x - 32] = 2 * tile[c % 2][kTile - 1 - threadIdx.x + 32];
      pipe.consumer_release();
    }
  }
}

__global__ void of_a_thread(const float* x, float* y, int tiles) {
  __shared__ float tile[2][kTile];
  cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
  for (int c = 0, fetched = 0; c < tiles; ++c) {
    for (; fetched < c + 2; ++fetched) {
      pipe.producer_acquire();
      if (fetched < tiles) {
        cuda::memcpy_async(&tile[fetched % 2][threadIdx.x], x + fetched * kTile + threadIdx.x, sizeof(float), pipe);
      }
      pipe.producer_commit();
    }
    if (c % 2 == 0) pipe.consumer_wait();
    else cuda::pipeline_consumer_wait_prior<1>(pipe);
    __syncthreads();
    y[c * kTile + threadIdx.x] = 2 * tile[c % 2][kTile - 1 - threadIdx.x];
    pipe.consumer_release();
    __syncthreads();
  }
}

__global__ void primitives(const float* x, float* y, int tiles) {
  __shared__ float tile[2][kTile];
  __shared__ __mbarrier_t full;
  if (threadIdx.x == 0) __mbarrier_init(&full, blockDim.x);
  __syncthreads();
  for (int c = 0; c < tiles; ++c) {
    __pipeline_memcpy_async(&tile[c % 2][threadIdx.x], x + c * kTile + threadIdx.x, 4);
    if (c % 2 == 0) {
      __pipeline_commit();
      __pipeline_wait_prior(0);
      __syncthreads();
    } else {
      __pipeline_arrive_on(&full);
      const __mbarrier_token_t token = __mbarrier_arrive(&full);
      while (!__mbarrier_try_wait(&full, token, 1000)) {
      }
    }
    y[c * kTile + threadIdx.x] = 2 * tile[c % 2][kTile - 1 - threadIdx.x];
  }
}

// Bulk copies there and back, by a barrier object and by the functions for PTX.
__global__ void bulk(const float* x, float* y, int tiles) {
  __shared__ alignas(16) float tile[kTile], doubled[kTile];
  __shared__ barrier full;
  if (threadIdx.x == 0) init(&full, blockDim.x);
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  for (int c = 0; c < tiles; ++c) {
    barrier::arrival_token token;
    if (threadIdx.x != 0) token = full.arrive();
    else if (c % 3 == 0) {
      cde::cp_async_bulk_global_to_shared(tile, x + c * kTile, sizeof tile, full);
      token = cuda::device::barrier_arrive_tx(full, 1, sizeof tile);
    } else if (c % 3 == 1) {
      cuda::device::memcpy_async_tx(tile, x + c * kTile, cuda::aligned_size_t<16>(sizeof tile), full);
      cuda::device::barrier_expect_tx(full, sizeof tile);
      token = full.arrive();
    } else {
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, x + c * kTile, sizeof tile,
                         cuda::device::barrier_native_handle(full));
      token = cuda::device::barrier_arrive_tx(full, 1, sizeof tile);
    }
    full.wait(std::move(token));
    doubled[threadIdx.x] = 2 * tile[kTile - 1 - threadIdx.x];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      if (c % 2 == 0) {
        cde::cp_async_bulk_shared_to_global(y + c * kTile, doubled, sizeof doubled);
        cde::cp_async_bulk_commit_group();
        cde::cp_async_bulk_wait_group_read<0>();
      } else {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, y + c * kTile, doubled, sizeof doubled);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
      }
    }
    __syncthreads();
  }
}

// A group's copy from places that are no multiples of 4, and by numbers of elements.
__global__ void of_a_group(const float* x, float* y, int tiles) {
  __shared__ alignas(16) char raw[kTile * 4];
  __shared__ float tile[kTile];
  auto block = cg::this_thread_block();
  for (int c = 0; c < tiles; ++c) {
    const char* const from = reinterpret_cast<const char*>(x + c * kTile);
    cg::memcpy_async(block, raw, from, 3);
    cg::memcpy_async(block, raw + 3, from + 3, kTile * 4 - 5);
    cg::memcpy_async(block, raw + kTile * 4 - 2, from + kTile * 4 - 2, 2);
    cg::memcpy_async(block, tile, std::size_t{kTile}, x + c * kTile, std::size_t{kTile});
    cg::wait(block);
    const int other = kTile - 1 - threadIdx.x;
    y[c * kTile + threadIdx.x] = tile[other] + reinterpret_cast<const float*>(raw)[other];
    block.sync();
  }
}

TEST void run_copies(int which, const float* x, float* y, int tiles) {
  if (which == 0) counted<<<1, kTile>>>(x, y, tiles);
  if (which == 1) bytes<<<1, kTile>>>(x, y, tiles);
  if (which == 2) dropped<<<1, kTile>>>(x, y, tiles);
  if (which == 3) unified<1><<<1, kTile>>>(x, y, tiles);
  if (which == 4) unified<3><<<1, kTile>>>(x, y, tiles);
  if (which == 5) with_roles<false><<<1, kTile + 32>>>(x, y, tiles);
  if (which == 6) with_roles<true><<<1, kTile + 32>>>(x, y, tiles);
  if (which == 7) of_a_thread<<<1, kTile>>>(x, y, tiles);
  if (which == 8) primitives<<<1, kTile>>>(x, y, tiles);
  if (which == 9) bulk<<<1, kTile>>>(x, y, tiles);
  if (which == 10) of_a_group<<<1, kTile>>>(x, y, tiles);
}

// The registers of each thread, and a barrier in the other block of a cluster at which the block arrives.
__global__ __cluster_dims__(2, 1, 1) void functions_of_ptx(unsigned* out) {
  __shared__ std::uint64_t arrived;
  const unsigned rank = ptx::get_sreg_cluster_ctarank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&arrived, 2);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  ptx::barrier_cluster_arrive(ptx::sem_relaxed);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  std::uint64_t* const other = cg::this_cluster().map_shared_rank(&arrived, 1 - rank);
  if (threadIdx.x % 32 == 0) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, other);
  }
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &arrived, 0)) {
  }
  const unsigned thread = ptx::get_sreg_ctaid_x() * ptx::get_sreg_ntid_x() + ptx::get_sreg_tid_x();
  out[thread] = thread + 1000 * ptx::getctarank(ptx::space_cluster, other) + 10000 * ptx::get_sreg_laneid() +
                1000000 * __popc(ptx::get_sreg_lanemask_lt());
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}
TEST void run_functions_of_ptx(unsigned* out) { functions_of_ptx<<<2, 64>>>(out); }

__global__ void spaces(const float* x, unsigned* out) {
  __shared__ float tile[1];
  extern __shared__ float dynamic[];
  out[0] = __isShared(tile) + 10 * __isShared(dynamic) + 100 * __isShared(x) + 1000 * __isGlobal(x) + 10000 * __isGlobal(tile);
}
TEST void run_spaces(const float* x, unsigned* out) { spaces<<<1, 1, 16>>>(x, out); }

__global__ void misplaced(const float* x) {
  __shared__ barrier full;
  __shared__ alignas(16) float tile[kTile + 1];
  if (threadIdx.x == 0) init(&full, 1);
  cuda::memcpy_async(tile + 1, x, cuda::aligned_size_t<16>(16), full);
}
TEST void run_misplaced(const float* x) { misplaced<<<1, 1>>>(x); }

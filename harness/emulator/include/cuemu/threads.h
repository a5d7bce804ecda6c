// The loop over a block's threads, inside of kernels that the rewriter knows to wait for nothing: the compiler sees it
// together with the kernel's body, inlines the one into the other, and may run several threads in one vector.
#pragma once

#include "runtime.h"

#ifdef CUEMU_CHECKED
// Each thread's accesses are told apart by the thread that runs, so each is entered by itself.
#define CUEMU_THREADS_BEGIN
#define CUEMU_PUBLISHED_THREADS_BEGIN
#define CUEMU_THREADS_END
#else
// Around the body of a kernel. Parameters are captured by value and copied for each thread, which may change its own.
#define CUEMU_LOOP_BEGIN(is_published)                                                                             \
  ::cuemu::for_each_thread<is_published>([=](const uint3 threadIdx, const uint3 blockIdx, const dim3 blockDim,     \
                                             const dim3 gridDim) mutable __attribute__((always_inline))->void {
#define CUEMU_THREADS_BEGIN CUEMU_LOOP_BEGIN(false)
// The same where something else than the body itself reads threadIdx: a function that it calls, or the runtime.
#define CUEMU_PUBLISHED_THREADS_BEGIN CUEMU_LOOP_BEGIN(true)
#define CUEMU_THREADS_END });
#endif

// With AVX2 a vector's store can leave out the lanes that `if (i < n)` leaves out; without, such a loop stays a loop of
// single threads. No instruction of it rounds differently. The library itself still runs on any x86-64.
#ifdef __x86_64__
#define CUEMU_WIDE __attribute__((noinline, target("avx2")))
#else
#define CUEMU_WIDE __attribute__((noinline))
#endif

namespace cuemu {

inline bool has_wide_vectors() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2");
#else
  return true;
#endif
}

// Grids up to this many blocks have no index beyond 2^31 in x, which the loops below let the compiler know: it may then
// take `blockIdx.x * blockDim.x + threadIdx.x` for neighbours, which unsigned numbers that wrap around would not be.
constexpr unsigned kMostNumbered = 1u << 21;

#define CUEMU_KNOWN(condition) \
  do {                         \
    if (!(condition)) __builtin_unreachable(); \
  } while (false)

template <bool is_published, typename Body>
CUEMU_WIDE void run_wide(const Body& given) {
  const Body body = given;  // out of reach of the kernel's stores
  const uint3 block = blockIdx;
  const dim3 size = blockDim, grid = gridDim;
  CUEMU_KNOWN(block.x < kMostNumbered && block.y < 65536 && block.z < 65536);
  CUEMU_KNOWN(size.x <= 1024 && size.y <= 1024 && size.z <= 64);
  for (unsigned z = 0; z < size.z; ++z) {
    for (unsigned y = 0; y < size.y; ++y) {
      for (unsigned x = 0; x < size.x; ++x) {
        if constexpr (is_published) cuemu_thread_index = {x, y, z};
        Body thread = body;
        thread({x, y, z}, block, size, grid);
      }
    }
  }
}

template <bool is_published, typename Body>
__attribute__((noinline)) void run_in_order(const Body& given, const Threads threads) {
  const Body body = given;
  const uint3 block = blockIdx;
  const dim3 size = blockDim, grid = gridDim;
  for (unsigned i = 0; i < threads.count; ++i) {
    const uint3 index = threads.indices[threads.numbers[i]];
    if constexpr (is_published) cuemu_thread_index = index;
    Body thread = body;
    thread(index, block, size, grid);
  }
}

// Runs `body(threadIdx, blockIdx, blockDim, gridDim)` for every thread of the block, in the launch's order.
template <bool is_published, typename Body>
inline void for_each_thread(const Body& body) {
  const Threads threads = take_threads();
  if (threads.is_forward && gridDim.x <= kMostNumbered && has_wide_vectors()) run_wide<is_published>(body);
  else run_in_order<is_published>(body, threads);
}

#undef CUEMU_KNOWN

}  // namespace cuemu

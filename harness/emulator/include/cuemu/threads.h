// The loop over a block's threads, inside kernels that certainly wait for nothing. The compiler
// sees the loop together with the kernel's body, inlines the body and may run several threads in
// one vector.
#pragma once

#include "runtime.h"

// These macros surround the body of a kernel. The lambda captures parameters by value and copies
// them for each thread, which may change its own. The second pair of braces lets a body declare its
// own variable blockDim.
#ifdef CUEMU_CHECKED
// The runtime enters each thread by itself, since the checker asks which thread runs.
#define CUEMU_EACH_THREAD_BEGIN(loop)
#define CUEMU_EACH_THREAD_END
#else
// Each compiler accepts the attribute in a different place.
#ifdef __clang__
#define CUEMU_MUTABLE __attribute__((always_inline)) mutable
#else
#define CUEMU_MUTABLE mutable __attribute__((always_inline))
#endif
#define CUEMU_EACH_THREAD_BEGIN(loop)                                                                              \
  ::cuemu::for_each_thread<::cuemu::Loop::loop>([=](const uint3 threadIdx, const uint3 blockIdx,                   \
                                                    const dim3 blockDim, const dim3 gridDim) CUEMU_MUTABLE->void { \
    {
#define CUEMU_EACH_THREAD_END \
  }                           \
  });
#endif

// With AVX2 a vector store can skip the lanes that `if (i < n)` excludes. Without AVX2 such a loop
// stays one of single threads. No AVX2 instruction rounds differently, and the library itself still
// runs on any x86-64.
#ifdef __x86_64__
#define CUEMU_WIDE __attribute__((noinline, target("avx2")))
#else
#define CUEMU_WIDE __attribute__((noinline))
#endif

namespace cuemu {

enum class Loop {
  vectors,    // nothing prevents several threads in one vector
  ordered,    // one thread after the other
  published,  // ordered, and a called function or a report reads threadIdx
};

inline bool has_wide_vectors() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx2");
#else
  return true;
#endif
}

template <Loop loop, typename Body>
__attribute__((noinline)) void run_ordered(const Body& given, const Threads threads) {
  const Body body = given;  // a copy that the kernel's stores cannot reach
  const uint3 block = blockIdx;
  const dim3 size = blockDim, grid = gridDim;
  for (unsigned i = 0; i < threads.count; ++i) {
    const uint3 index = threads.indices[threads.numbers[i]];
    if constexpr (loop == Loop::published) cuemu_thread_index = index;
    Body thread = body;
    thread(index, block, size, grid);
  }
}

// With up to this many blocks no index in x exceeds 2^31. With that knowledge the compiler may
// treat the elements at `blockIdx.x * blockDim.x + threadIdx.x` as neighbours. Otherwise the
// unsigned index could wrap around between two threads.
constexpr unsigned kMostNumbered = 1u << 21;

#define CUEMU_KNOWN(condition) \
  if (!(condition)) __builtin_unreachable()

template <typename Body>
CUEMU_WIDE void run_vectors(const Body& given) {
  const Body body = given;
  const uint3 block = blockIdx;
  const dim3 size = blockDim, grid = gridDim;
  CUEMU_KNOWN(block.x < kMostNumbered && block.y < 65536 && block.z < 65536);
  CUEMU_KNOWN(size.x <= 1024 && size.y <= 1024 && size.z <= 64);
  for (unsigned z = 0; z < size.z; ++z) {
    for (unsigned y = 0; y < size.y; ++y) {
      for (unsigned x = 0; x < size.x; ++x) {
        Body thread = body;
        thread({x, y, z}, block, size, grid);
      }
    }
  }
}

#undef CUEMU_KNOWN

// Runs `body(threadIdx, blockIdx, blockDim, gridDim)` for every thread of the block, in the
// launch's order. The result is the same as for one thread after the other. Where the compiler
// cannot prove that, it tests at run time.
template <Loop loop, typename Body>
inline void for_each_thread(const Body& body) {
  // A thread's stack holds up to four copies.
  static_assert(sizeof(Body) <= 12 * 1024 || sizeof(Body) > 32764,  // the launch refuses those
                "cuemu-unsupported: a kernel with more than 12 KB of parameters: "
                "copy large ones to the device, and pass a pointer");
  const Threads threads = take_threads();
  if constexpr (loop == Loop::vectors) {
    if (threads.is_forward && gridDim.x <= kMostNumbered && has_wide_vectors()) return run_vectors(body);
  }
  run_ordered<loop>(body, threads);
}

}  // namespace cuemu

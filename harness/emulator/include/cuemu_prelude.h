// The names that nvcc gives every CUDA source without an include. The prelude is also safe before
// the headers of torch and the standard library: it has no function-like macro with a common name,
// and its attributes survive inside __attribute__((...)).
#pragma once

#ifdef CUEMU_CHECKED
// The checker must know what a kernel allocates. Host code gets the ordinary functions through these.
#pragma redefine_extname malloc cuemu_malloc
#pragma redefine_extname free cuemu_free
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmath>
#include <type_traits>
#include <utility>

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
// The rewriter replaces __cluster_dims__ where it can. An attribute, since these stand before the return type or behind it.
#define __cluster_dims__(...) __attribute__((aligned([] {                                                           \
  static_assert(false, "cuemu-unsupported: this form of __cluster_dims__: give the sizes without template parameters, or a launch attribute"); \
  return 1;                                                                                                         \
}())))
#define __block_size__(...) __cluster_dims__()
// Empty, because the standard library writes __attribute__((__noinline__)).
#define __noinline__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __nv_pure__ __attribute__((pure))
#ifndef __clang__
#define __builtin_assume(condition) static_cast<void>(0)
#endif
#define __shared__ \
  static_assert(false, "cuemu-unsupported: this form of __shared__: declare it as a plain variable or array in a function");

// The rewriter puts the first behind `new`, and the second into the condition of a loop that waits for a volatile
// value, which the checking mode sees by itself.
#ifdef CUEMU_CHECKED
#define CUEMU_ON_HEAP (::cuemu::OnHeap())
#define CUEMU_WAITS
// And this behind __device__ and __constant__ of a variable, so that unused bytes follow it.
#define CUEMU_APART __attribute__((aligned(4096)))
#else
#define CUEMU_ON_HEAP
#define CUEMU_WAITS ::cuemu::yield(),
#define CUEMU_APART
#endif

// What nvcc says of itself, to the author's text and to torch's headers. __CUDA_ARCH__ stays undefined.
#define __NVCC__ 1
#define __CUDACC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define __CUDACC_VER_BUILD__ 93

#define CUDART_VERSION 12080
#define CUDA_VERSION 12080
#define __CUDART_API_VERSION CUDART_VERSION

#include "cuemu/atomics.h"
#include "cuemu/device.h"
#include "cuemu/host_api.h"
#include "cuemu/launch.h"
#include "cuemu/math.h"
#include "cuemu/runtime.h"
#include "cuemu/simd.h"
#include "cuemu/tensor_map.h"
#include "cuemu/threads.h"
#include "cuemu/unsupported.h"
#include "cuemu/vector_types.h"

// Reductions in memory of several values at once, and copies that count as arrivals at an mbarrier.
#include <cuda_runtime.h>

#define TEST extern "C"

// Each of 64 threads adds its number, and multiples of it, to what lies there.
__global__ void add(float* values, unsigned* halves, unsigned* brains, float* before) {
  const float own = threadIdx.x % 8;
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(values), "f"(own), "f"(2 * own), "f"(3 * own), "f"(4 * own) : "memory");
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(values + 4), "f"(own), "f"(-own) : "memory");
  const unsigned ones = 0x3c003c00, brain_ones = 0x3f803f80;  // two of each
  asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(halves), "r"(ones) : "memory");
  asm volatile("red.global.add.noftz.v2.f16x2 [%0], {%1, %2};" ::"l"(halves + 2), "r"(ones), "r"(0x40003c00u) : "memory");
  asm volatile("red.relaxed.gpu.global.add.noftz.bf16x2 [%0], %1;" ::"l"(brains), "r"(brain_ones) : "memory");
  asm volatile("red.global.add.noftz.f16 [%0], %1;" ::"l"(halves + 1), "h"(static_cast<unsigned short>(0x3c00)) : "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile("atom.global.add.v2.f32 {%0, %1}, [%2], {%3, %4};" : "=f"(before[0]), "=f"(before[1]) : "l"(values), "f"(1.0f), "f"(1.0f) : "memory");
  unsigned old;
  asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "l"(halves), "r"(ones) : "memory");
  before[2] = old;
}
TEST void run_add(float* values, unsigned* halves, unsigned* brains, float* before) { add<<<1, 64>>>(values, halves, brains, before); }

// Each thread's copy is its arrival.
__global__ void reversed(const int* from, int* to) {
  __shared__ int tile[64];
  __shared__ unsigned long long full;
  const unsigned barrier = static_cast<unsigned>(__cvta_generic_to_shared(&full));
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 64;" ::"r"(barrier) : "memory");
  __syncthreads();
  const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from + threadIdx.x) : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  asm volatile(
      "{\n .reg .pred done;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@done bra DONE;\n bra AGAIN;\n DONE:\n }" ::"r"(barrier) : "memory");
  to[threadIdx.x] = tile[63 - threadIdx.x];
}
TEST void run_reversed(const int* from, int* to) { reversed<<<1, 64>>>(from, to); }

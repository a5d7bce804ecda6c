// kind: race
// A place of the ring is given back before it has been read.
#include <cuda_runtime.h>

using Barrier = unsigned long long;

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void init(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(arrivals) : "memory");
}
__device__ void expect(Barrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(barrier)) : "memory");
}
__device__ void load(void* to, const void* from, unsigned bytes, Barrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)), "l"(from), "r"(bytes), "r"(at(barrier)) : "memory");
}
__device__ void wait(Barrier* barrier, unsigned parity) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n bra AGAIN;\n DONE:\n }" ::"r"(at(barrier)), "r"(parity) : "memory");
}
__device__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Warp 0 fills the places of a ring; warp 1 reads them.
__global__ void ring(const float* x, float* y) {
  __shared__ alignas(16) float tile[2][128];
  __shared__ Barrier full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int place = 0; place < 2; ++place) {
      init(&full[place], 1);
      init(&empty[place], 1);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int c = 0; c < 4; ++c) {
      const int place = c % 2;
      wait(&empty[place], (c / 2 + 1) % 2);
      expect(&full[place], 512);
      load(tile[place], x + 128 * c, 512, &full[place]);
    }
  } else if (threadIdx.x >= 32) {
    const int lane = threadIdx.x - 32;
    for (int c = 0; c < 4; ++c) {
      const int place = c % 2;
      wait(&full[place], c / 2 % 2);
      if (lane == 0) arrive(&empty[place]);
      for (int i = lane; i < 128; i += 32) y[128 * c + i] = 3 * tile[place][127 - i];  // BUG
      fence_proxy();
    }
  }
}

extern "C" void run() {
  const int n = 512;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  ring<<<1, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The parity is that of the number of earlier uses.
#include <cuda_runtime.h>

using Barrier = unsigned long long;

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void init(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(arrivals) : "memory");
}
__device__ void expect(Barrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
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

__global__ void streamed(const float* x, float* y) {
  __shared__ alignas(16) float tile[2][128];
  __shared__ Barrier full[2];
  if (threadIdx.x == 0) {
    init(&full[0], 1);
    init(&full[1], 1);
  }
  __syncthreads();
  for (int c = 0; c < 4; ++c) {
    Barrier* const barrier = &full[c % 2];
    if (threadIdx.x == 0) {
      expect(barrier, 512);
      load(tile[c % 2], x + 128 * c, 512, barrier);
    }
    wait(barrier, c / 2 % 2);
    for (int i = threadIdx.x; i < 128; i += 32) y[128 * c + i] = 3 * tile[c % 2][127 - i];
    fence_proxy();
    __syncthreads();
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
  streamed<<<1, 32>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

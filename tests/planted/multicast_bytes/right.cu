// Each block expects all bytes.
#include <cuda_runtime.h>

using Barrier = unsigned long long;

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void init(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(arrivals) : "memory");
}
__device__ void expect(Barrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(Barrier* barrier, unsigned parity) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n bra AGAIN;\n DONE:\n }" ::"r"(at(barrier)), "r"(parity) : "memory");
}
__device__ unsigned rank_in_cluster() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ void sync_cluster() { asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory"); }

// The block of rank 0 copies to both blocks of the cluster.
__global__ void __cluster_dims__(2, 1, 1) exchange(const float* x, float* y) {
  __shared__ __align__(16) float tile[64];
  __shared__ Barrier full;
  const unsigned rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    init(&full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  sync_cluster();
  if (threadIdx.x == 0) {
    expect(&full, 256);
    if (rank == 0) {
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(at(tile)), "l"(x), "r"(256), "r"(at(&full)), "h"(static_cast<unsigned short>(3)) : "memory");
    }
  }
  wait(&full, 0);
  y[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
  sync_cluster();
}

extern "C" void run() {
  static float x[64], y[128];
  for (int i = 0; i < 64; ++i) x[i] = i;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  exchange<<<2, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

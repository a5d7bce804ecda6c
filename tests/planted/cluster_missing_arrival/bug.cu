// kind: deadlock
// The barrier counts 64 arrivals, and 63 threads of the other block arrive.
#include <cuda_runtime.h>

using Barrier = unsigned long long;

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void init(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(arrivals) : "memory");
}
__device__ void wait(Barrier* barrier, unsigned parity) {
  asm volatile(  // BUG
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
__device__ unsigned in_rank(const void* place, unsigned rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(place)), "r"(rank));
  return there;
}
__device__ void store_there(unsigned there, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}

// Rank 0 waits for a sum of the other block, which that block tells by an mbarrier.
__global__ void __cluster_dims__(2, 1, 1) exchange(float* y) {
  __shared__ float box[64];
  __shared__ Barrier told;
  const unsigned rank = rank_in_cluster();
  if (threadIdx.x == 0) {
    init(&told, 64);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (rank == 1 && threadIdx.x < 63) {
    store_there(in_rank(&box[threadIdx.x], 0), 0.5f * threadIdx.x);
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(in_rank(&told, 0)) : "memory");
  }
  if (rank == 0) wait(&told, 0);
  if (rank == 0) y[threadIdx.x] = box[63 - threadIdx.x];
  sync_cluster();
}

extern "C" void run() {
  const int n = 128;
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, sizeof y);
  exchange<<<2, 64>>>(d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_y);
}

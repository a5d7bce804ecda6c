// kind: barrier
// A thread arrives at the cluster's barrier twice before it waits.
#include <cuda_runtime.h>

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
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

__device__ void arrive_in_cluster() { asm volatile("barrier.cluster.arrive;" ::: "memory"); }  // BUG
__device__ void wait_in_cluster() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

__global__ void __cluster_dims__(2, 1, 1) exchange(float* y) {
  __shared__ float box[64];
  const unsigned rank = rank_in_cluster();
  sync_cluster();
  store_there(in_rank(&box[threadIdx.x], 1 - rank), 0.5f * threadIdx.x);
  arrive_in_cluster();
  if (rank == 0) arrive_in_cluster();
  wait_in_cluster();
  y[blockIdx.x * 64 + threadIdx.x] = box[threadIdx.x];
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

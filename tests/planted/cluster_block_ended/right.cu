// No block ends before all have read.
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
__device__ float load_there(unsigned there) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
  return value;
}

// Each block adds what all blocks of its cluster hold.
__global__ void __cluster_dims__(4, 1, 1) exchange(float* y) {
  __shared__ float own;
  if (threadIdx.x == 0) own = blockIdx.x;
  sync_cluster();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (unsigned rank = 0; rank < 4; ++rank) sum += load_there(in_rank(&own, rank));
    y[blockIdx.x] = sum;
  }
  sync_cluster();
}

extern "C" void run() {
  const int n = 8;
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, sizeof y);
  exchange<<<8, 32>>>(d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_y);
}

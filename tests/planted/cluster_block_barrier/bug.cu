// kind: race
// also: uninitialised
// A block's own barrier does not order what another block of the cluster stores.
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

// Each block gives its values to the next one of the cluster.
__global__ void __cluster_dims__(2, 1, 1) exchange(float* y) {
  __shared__ float box[64];
  const unsigned next = (rank_in_cluster() + 1) % 2;
  sync_cluster();
  store_there(in_rank(&box[threadIdx.x], next), blockIdx.x + 0.5f * threadIdx.x);
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = box[63 - threadIdx.x];  // BUG
  sync_cluster();
}

extern "C" void run() {
  const int n = 256;
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, sizeof y);
  exchange<<<4, 64>>>(d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_y);
}

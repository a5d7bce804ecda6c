// kind: race
// One thread clears the counters by memset, and nobody waits for it.
#include <cuda_runtime.h>

__global__ void count(const int* x, int* y, int n) {
  __shared__ int counts[64];
  if (threadIdx.x == 0) memset(counts, 0, sizeof counts);  // BUG
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&counts[x[i]], 1);  // BUG
  __syncthreads();
  y[threadIdx.x] = counts[threadIdx.x];
}

extern "C" void run() {
  const int n = 500;
  static int x[n], y[64];
  for (int i = 0; i < n; ++i) x[i] = i % 64;
  int *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  count<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

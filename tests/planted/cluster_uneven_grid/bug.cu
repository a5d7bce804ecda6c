// kind: launch
// Ten blocks are no whole number of clusters of four.
#include <cuda_runtime.h>


__global__ void __cluster_dims__(4, 1, 1) scale(float* y, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = 2 * i;
}

extern "C" void run() {
  const int n = 600;
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, sizeof y);
  const int blocks = (n + 63) / 64;
  scale<<<blocks, 64>>>(d_y, n);  // BUG
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_y);
}

// kind: race
// also: uninitialised
// Lanes exchange values without a common __syncwarp, behind 66,000 of their own.
#include <cuda_runtime.h>

__global__ void total(const int* x, int* y) {
  __shared__ int parts[32];
  const int lane = threadIdx.x;
  for (int k = 0; k < 66000; ++k) __syncwarp(1u << lane);
  parts[lane] = x[lane];  // BUG
  __syncwarp(1u << lane);
  if (lane == 0) *y = parts[0] + parts[31];  // BUG
}

extern "C" void run() {
  const int n = 32;
  int x[n], y = 0;
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  int *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  total<<<1, n>>>(d_x, d_y);
  cudaMemcpy(&y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// A lane synchronises more often than the checking mode counts.
#include <cuda_runtime.h>

__global__ void count(int* y) {
  for (int k = 0; k < (1 << 23) + 9; ++k) __syncwarp(1);
  *y = 1;
}

extern "C" void run() {
  int y = 0;
  int* d_y;
  cudaMalloc(&d_y, sizeof y);
  count<<<1, 1>>>(d_y);
  cudaMemcpy(&y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_y);
}

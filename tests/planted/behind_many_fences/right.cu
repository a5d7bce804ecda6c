// An atomic sum, behind four million fences.
#include <cuda_runtime.h>

__global__ void total(const int* x, int* y) {
  __shared__ int sum;
  if (threadIdx.x == 0) {
    sum = 0;
    for (int k = 0; k < 4300000; ++k) __threadfence_block();
  }
  __syncthreads();
  atomicAdd(&sum, x[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) *y = sum;
}

extern "C" void run() {
  const int n = 64;
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

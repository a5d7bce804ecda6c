// The branch is the same for all threads of a block, so each branch may have its barrier.
#include <cuda_runtime.h>

__global__ void two_roles(const float* x, float* y, int n) {
  __shared__ float cells[64];
  if (blockIdx.x % 2 == 0) {
    cells[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) y[threadIdx.x] = cells[threadIdx.x] * cells[63 - threadIdx.x];
  } else {
    cells[63 - threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) y[32 + threadIdx.x] = cells[threadIdx.x] + cells[63 - threadIdx.x];
  }
}

extern "C" void run() {
  const int n = 64;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemset(d_y, 0, n * sizeof(float));
  two_roles<<<2, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

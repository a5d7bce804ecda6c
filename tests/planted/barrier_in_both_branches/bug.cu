// kind: divergence
// Loading and computing threads each have a barrier in their own branch; the threads of one block wait at different ones.
#include <cuda_runtime.h>

__global__ void two_roles(const float* x, float* y, int n) {
  __shared__ float cells[64];
  if (threadIdx.x < 32) {
    cells[threadIdx.x] = x[threadIdx.x];
    cells[threadIdx.x + 32] = x[threadIdx.x + 32];
    __syncthreads();  // BUG
  } else {
    __syncthreads();  // BUG
    y[threadIdx.x - 32] = cells[threadIdx.x] * cells[threadIdx.x - 32];
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
  two_roles<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

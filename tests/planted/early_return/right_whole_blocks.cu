// Blocks beyond the end return as a whole.
#include <cuda_runtime.h>

__global__ void moving_sum(const float* x, float* y, int n) {
  __shared__ float tile[64 + 1];
  if (blockIdx.x * blockDim.x >= n) return;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  if (threadIdx.x == 63) tile[64] = i + 1 < n ? x[i + 1] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x] + tile[threadIdx.x + 1];
}

extern "C" void run() {
  const int n = 100;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  moving_sum<<<4, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

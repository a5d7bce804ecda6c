// Threads beyond n stage zero.
#include <cuda_runtime.h>

__global__ void reverse_within_blocks(const float* x, float* y, int n) {
  __shared__ float tile[128];
  int base = blockIdx.x * blockDim.x;
  int i = base + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  int last = min(blockDim.x, n - base) - 1;
  if (i < n) y[i] = tile[last - threadIdx.x];
}

extern "C" void run() {
  const int n = 333;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  reverse_within_blocks<<<(n + 127) / 128, 128>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: out-of-bounds
// Threads beyond n stage elements that do not exist, although nobody uses these cells of the tile.
#include <cuda_runtime.h>

__global__ void reverse_within_blocks(const float* x, float* y, int n) {
  __shared__ float tile[128];
  int base = blockIdx.x * blockDim.x;
  int i = base + threadIdx.x;
  tile[threadIdx.x] = x[i];  // BUG
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

// Every thread keeps its own maximum; thread 0 alone writes the shared cell, between barriers.
#include <cuda_runtime.h>

__global__ void scale_by_max(const float* x, float* y, int n) {
  __shared__ float best;
  __shared__ float mine[64];
  mine[threadIdx.x] = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float v = fabsf(x[i]);
    mine[threadIdx.x] = fmaxf(mine[threadIdx.x], v);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    best = mine[0];
    for (int t = 1; t < blockDim.x; ++t) best = fmaxf(best, mine[t]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] / best;
}

extern "C" void run() {
  const int n = 200;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 29) % 97 - 40.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  scale_by_max<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

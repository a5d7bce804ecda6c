// All threads take as many turns as the whole block needs, and the guard is inside.
#include <cuda_runtime.h>

__global__ void chunked_prefix_max(const float* x, float* y, int n) {
  __shared__ float chunk[64];
  __shared__ float before;
  if (threadIdx.x == 0) before = -INFINITY;
  __syncthreads();
  for (int base = 0; base < n; base += blockDim.x) {
    int i = base + threadIdx.x;
    chunk[threadIdx.x] = i < n ? x[i] : -INFINITY;
    __syncthreads();
    float best = before;
    for (int t = 0; t <= threadIdx.x; ++t) best = fmaxf(best, chunk[t]);
    if (i < n) y[i] = best;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) before = best;
    __syncthreads();
  }
  __syncthreads();
  if (threadIdx.x == 0) y[n] = before;
}

extern "C" void run() {
  const int n = 100;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 23) % 59;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n + 1];
  float* d_y;
  cudaMalloc(&d_y, (n + 1) * sizeof(float));
  cudaMemset(d_y, 0, (n + 1) * sizeof(float));
  chunked_prefix_max<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, (n + 1) * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

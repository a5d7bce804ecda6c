// kind: divergence
// The loop has a barrier, but threads with a small index take one turn more than the others.
#include <cuda_runtime.h>

__global__ void chunked_prefix_max(const float* x, float* y, int n) {
  __shared__ float chunk[64];
  __shared__ float before;
  if (threadIdx.x == 0) before = -INFINITY;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    chunk[threadIdx.x] = x[i];
    __syncthreads();  // BUG
    float best = before;
    for (int t = 0; t <= threadIdx.x; ++t) best = fmaxf(best, chunk[t]);
    y[i] = best;
    __syncthreads();  // BUG
    if (threadIdx.x == blockDim.x - 1) before = best;
    __syncthreads();  // BUG
  }
  __syncthreads();  // BUG
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

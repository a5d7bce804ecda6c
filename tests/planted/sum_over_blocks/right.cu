// Every block adds its part to the cell with atomicAdd.
#include <cuda_runtime.h>

__global__ void sum_kernel(const float* x, float* total, int n) {
  __shared__ float cache[128];
  float v = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
  cache[threadIdx.x] = v;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) cache[threadIdx.x] += cache[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, cache[0]);
}

extern "C" void run() {
  const int n = 1500;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 3;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float total[1];
  float* d_total;
  cudaMalloc(&d_total, sizeof(float));
  cudaMemset(d_total, 0, sizeof(float));
  sum_kernel<<<4, 128>>>(d_x, d_total, n);
  cudaMemcpy(total, d_total, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_total);
}

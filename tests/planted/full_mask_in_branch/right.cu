// The shuffle stands outside the branch.
#include <cuda_runtime.h>

__global__ void sum_of_large(const float* x, float* total, int* any_large) {
  int lane = threadIdx.x % 32;
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  bool large = v > 10.0f;
  float sum = large ? v : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
  if (lane == 31) atomicAdd(total, sum);
  if (__any_sync(0xffffffff, large) && lane == 0) atomicAdd(any_large, 1);
}

extern "C" void run() {
  const int n = 128;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 32;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float total[1];
  float* d_total;
  cudaMalloc(&d_total, sizeof(float));
  cudaMemset(d_total, 0, sizeof(float));
  static int any_large[1];
  int* d_any_large;
  cudaMalloc(&d_any_large, sizeof(int));
  cudaMemset(d_any_large, 0, sizeof(int));
  sum_of_large<<<2, 64>>>(d_x, d_total, d_any_large);
  cudaMemcpy(total, d_total, sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(any_large, d_any_large, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_total);
  cudaFree(d_any_large);
}

// Lanes beyond n stay and add zero.
#include <cuda_runtime.h>

__global__ void l1_norm(const float* x, float* norm, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? fabsf(x[i]) : 0.0f;
  for (int offset = 16; offset > 0; offset >>= 1) {
    v += __shfl_down_sync(0xffffffff, v, offset);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(norm, v);
}

extern "C" void run() {
  const int n = 77;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 5 - 2.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float norm[1];
  float* d_norm;
  cudaMalloc(&d_norm, sizeof(float));
  cudaMemset(d_norm, 0, sizeof(float));
  l1_norm<<<2, 64>>>(d_x, d_norm, n);
  cudaMemcpy(norm, d_norm, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_norm);
}

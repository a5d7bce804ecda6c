// The scratch memory is freed after the kernel that reads it.
#include <cuda_runtime.h>

__global__ void square(const float* x, float* scratch, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) scratch[i] = x[i] * x[i];
}

__global__ void shift(const float* scratch, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scratch[i] - 1.0f;
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
  float* d_scratch;
  cudaMalloc(&d_scratch, n * sizeof(float));
  square<<<1, 64>>>(d_x, d_scratch, n);
  shift<<<1, 64>>>(d_scratch, d_y, n);
  cudaFree(d_scratch);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The factors are in pinned memory, which the device may access.
#include <cuda_runtime.h>

__global__ void scale(const float* x, const float* factors, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factors[i % 2] * x[i];
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  float* factors;
  cudaMallocHost(&factors, 2 * sizeof(float));
  factors[0] = 2.0f;
  factors[1] = 3.0f;
  scale<<<1, 96>>>(d_x, factors, d_y, n);
  cudaDeviceSynchronize();
  cudaFreeHost(factors);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The elements of a std::vector are registered, so that the device may access them.
#include <cuda_runtime.h>

#include <vector>

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
  std::vector<float> factors{2.0f, 3.0f};
  cudaHostRegister(factors.data(), 2 * sizeof(float), cudaHostRegisterMapped);
  float* d_factors;
  cudaHostGetDevicePointer(&d_factors, factors.data(), 0);
  scale<<<1, 96>>>(d_x, d_factors, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaHostUnregister(factors.data());
  cudaFree(d_x);
  cudaFree(d_y);
}

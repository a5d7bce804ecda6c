// kind: out-of-bounds
// The kernel is given the address of a std::vector's elements, which are in host memory.
#include <cuda_runtime.h>

#include <vector>

__global__ void scale(const float* x, const float* factors, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factors[i % 2] * x[i];  // BUG
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
  scale<<<1, 96>>>(d_x, factors.data(), d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

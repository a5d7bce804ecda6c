// kind: out-of-bounds
// memcpy is the host's, and does not reach the device.
#include <cuda_runtime.h>

#include <cstring>

__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

extern "C" void run() {
  const int n = 90;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  std::memcpy(d_x, x, n * sizeof(float));  // BUG
  twice<<<1, 96>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

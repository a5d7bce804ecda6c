// The bound depends on the template, and the launch keeps it.
#include <cuda_runtime.h>

template <int kThreads, typename T>
__global__ void __launch_bounds__(2 * kThreads) add(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + T(1);
}

extern "C" void run() {
  const int n = 1000;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  add<128><<<(n + 255) / 256, 256>>>(d_x, d_y, n);
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

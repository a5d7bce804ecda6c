// kind: race
// Every thread overwrites a cell that its neighbours in other threads and blocks still read.
#include <cuda_runtime.h>

__global__ void smooth(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1) {
    y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3.0f;  // BUG
  }
}

extern "C" void run() {
  const int n = 200;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 6;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  smooth<<<(n + 63) / 64, 64>>>(d_x, d_x, n);
  cudaMemcpy(x, d_x, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
}

// kind: out-of-bounds
// The distance to the row's end is unsigned and wraps around for the threads beyond it, so the guard lets them pass.
#include <cuda_runtime.h>

__global__ void reverse_rows(const float* x, float* y, unsigned int cols) {
  const float* row = x + blockIdx.x * (size_t)cols;
  float* out = y + blockIdx.x * (size_t)cols;
  unsigned int left = cols - threadIdx.x;
  if (left > 0) out[threadIdx.x] = row[left - 1];  // BUG
}

extern "C" void run() {
  const int rows = 3, cols = 50;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float y[rows * cols];
  float* d_y;
  cudaMalloc(&d_y, rows * cols * sizeof(float));
  reverse_rows<<<rows, 64>>>(d_x, d_y, cols);
  cudaMemcpy(y, d_y, rows * cols * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

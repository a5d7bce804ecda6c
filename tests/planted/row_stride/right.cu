// The rows are addressed with the number of columns as their stride.
#include <cuda_runtime.h>

__global__ void row_sums(const float* x, float* sums, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int c = 0; c < cols; ++c) sum += x[row * cols + c];
  sums[row] = sum;
}

extern "C" void run() {
  const int rows = 50, cols = 20;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 6;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float sums[rows];
  float* d_sums;
  cudaMalloc(&d_sums, rows * sizeof(float));
  row_sums<<<1, 64>>>(d_x, d_sums, rows, cols);
  cudaMemcpy(sums, d_sums, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

// Two blocks add to one sum, with operations of the device's scope.
#include <cuda_runtime.h>

__global__ void row_sums(const float* x, float* y, int cols) {
  const int row = blockIdx.x / 2, part = blockIdx.x % 2;
  for (int c = part * blockDim.x + threadIdx.x; c < cols; c += 2 * blockDim.x) {
    atomicAdd(&y[row], x[row * cols + c]);
  }
}

extern "C" void run() {
  const int rows = 3, cols = 96;
  static float x[rows * cols], y[rows];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemset(d_y, 0, sizeof y);
  row_sums<<<2 * rows, 32>>>(d_x, d_y, cols);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

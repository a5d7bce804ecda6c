// The sums of type double begin behind a header of two floats.
#include <cuda_runtime.h>

__global__ void row_sums(const float* x, float* sums, int cols) {
  double* sum = reinterpret_cast<double*>(sums + 2 + 2 * blockIdx.x);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    atomicAdd(sum, (double)x[blockIdx.x * cols + c]);
  }
}

extern "C" void run() {
  const int rows = 3, cols = 48;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, sizeof x);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  static float sums[2 * rows + 2];
  float* d_sums;
  cudaMalloc(&d_sums, sizeof sums);
  cudaMemset(d_sums, 0, sizeof sums);
  row_sums<<<rows, 32>>>(d_x, d_sums, cols);
  cudaMemcpy(sums, d_sums, sizeof sums, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

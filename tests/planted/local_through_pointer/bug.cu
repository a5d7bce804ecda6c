// kind: out-of-bounds
// The first thread reads other threads' local variables through pointers.
#include <cuda_runtime.h>

__global__ void row_sums(const float* x, float* y, int cols) {
  __shared__ float* own[32];
  float mine[1] = {x[blockIdx.x * cols + threadIdx.x]};
  own[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += *own[i];  // BUG
    y[blockIdx.x] = sum;
  }
  __syncthreads();
}

extern "C" void run() {
  const int rows = 3, cols = 32;
  static float x[rows * cols], y[rows];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  row_sums<<<rows, 32>>>(d_x, d_y, cols);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// An array of the device has a sum for each block.
#include <cuda_runtime.h>

__device__ float sums[40];
__device__ int calls[40];

__global__ void row_sums(const float* x, float* y, int cols) {
  float* const own = sums;
  if (threadIdx.x == 0) {
    own[blockIdx.x] = 0;
    atomicAdd(&calls[0], 1);
  }
  __syncthreads();
  atomicAdd(&own[blockIdx.x], x[blockIdx.x * cols + threadIdx.x]);
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = own[blockIdx.x];
}

extern "C" void run() {
  const int rows = 40, cols = 32;
  float x[rows * cols], y[rows];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  row_sums<<<rows, cols>>>(d_x, d_y, cols);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

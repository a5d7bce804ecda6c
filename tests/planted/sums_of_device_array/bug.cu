// kind: out-of-bounds
// An array of the device has 32 sums, and 40 blocks use it through a pointer.
#include <cuda_runtime.h>

__device__ float sums[32];
__device__ int calls[32];

__global__ void row_sums(const float* x, float* y, int cols) {
  float* const own = sums;
  if (threadIdx.x == 0) {
    own[blockIdx.x] = 0;  // BUG
    atomicAdd(&calls[0], 1);
  }
  __syncthreads();
  atomicAdd(&own[blockIdx.x], x[blockIdx.x * cols + threadIdx.x]);  // BUG
  __syncthreads();
  if (threadIdx.x == 0) y[blockIdx.x] = own[blockIdx.x];  // BUG
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

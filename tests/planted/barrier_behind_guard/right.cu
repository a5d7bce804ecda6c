// The guard covers the load only; all threads reach both barriers.
#include <cuda_runtime.h>

__global__ void reverse_block(const int* x, int* y, int n) {
  __shared__ int cells[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cells[63 - threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  int v = i < n ? cells[threadIdx.x / 2 + 32] : 0;
  __syncthreads();
  cells[threadIdx.x] = v;
  if (i < n) y[i] = cells[threadIdx.x];
}

extern "C" void run() {
  const int n = 100;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  reverse_block<<<2, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

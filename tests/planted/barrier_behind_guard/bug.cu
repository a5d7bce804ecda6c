// kind: divergence
// Only the threads with i < n reach the first barrier; the others go on to the second.
#include <cuda_runtime.h>

__global__ void reverse_block(const int* x, int* y, int n) {
  __shared__ int cells[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    cells[63 - threadIdx.x] = x[i];
    __syncthreads();  // BUG
  }
  int v = i < n ? cells[threadIdx.x / 2 + 32] : 0;
  __syncthreads();  // BUG
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

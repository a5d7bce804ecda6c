// kind: launch
// 64 KB of dynamic shared memory are asked for without the attribute that allows more than 48 KB.
#include <cuda_runtime.h>

__global__ void sort_parity(const int* x, int* y, int n) {
  extern __shared__ int cells[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) cells[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = cells[(i * 2) % n + (i >= n / 2)];
}

extern "C" void run() {
  const int n = 512, bytes = 64 * 1024;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  sort_parity<<<1, 64, bytes>>>(d_x, d_y, n);  // BUG
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

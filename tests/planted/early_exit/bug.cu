// kind: race
// Every thread that finds the value stores its own index, with nothing that decides between them.
#include <cuda_runtime.h>

__global__ void find(const int* x, int wanted, volatile int* found, int* where, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (x[i] == wanted) {
      *where = i;  // BUG
      *found = 1;
    }
  }
}

extern "C" void run() {
  const int n = 400;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 50;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int found[1];
  int* d_found;
  cudaMalloc(&d_found, sizeof(int));
  cudaMemset(d_found, 0, sizeof(int));
  static int where[1];
  for (int i = 0; i < 1; ++i) where[i] = 1 << 30;
  int* d_where;
  cudaMalloc(&d_where, sizeof(int));
  cudaMemcpy(d_where, where, sizeof(int), cudaMemcpyHostToDevice);
  find<<<2, 64>>>(d_x, 49, d_found, d_where, n);
  cudaMemcpy(where, d_where, sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(found, d_found, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_found);
  cudaFree(d_where);
}

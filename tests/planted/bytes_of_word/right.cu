// Each thread uses a byte of its own; four threads share a word.
#include <cuda_runtime.h>

__global__ void shift(const unsigned char* x, unsigned char* y, int n) {
  __shared__ unsigned char row[128];
  int i = threadIdx.x;
  row[i] = x[i];
  row[i] += 1;
  y[i] = row[i];
}

extern "C" void run() {
  const int n = 128;
  static unsigned char x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  unsigned char *d_x, *d_y;
  cudaMalloc(&d_x, n);
  cudaMalloc(&d_y, n);
  cudaMemcpy(d_x, x, n, cudaMemcpyHostToDevice);
  shift<<<1, n>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

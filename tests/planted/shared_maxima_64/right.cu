// Atomic maxima of 64 bits in shared memory lie two words behind its start.
#include <cuda_runtime.h>

__global__ void largest(const int* x, int* y, int n) {
  __shared__ alignas(16) unsigned words[68];
  unsigned* const best = words + 2;
  int i = threadIdx.x;
  for (int k = i; k < 68; k += blockDim.x) words[k] = 0;
  __syncthreads();
  if (i < n) {
    atomicMax(reinterpret_cast<unsigned long long*>(best) + i / 2, (unsigned long long)x[i]);
  }
  __syncthreads();
  if (i < n) y[i] = (int)best[i / 2 * 2];
}

extern "C" void run() {
  const int n = 60;
  static int x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 7;
  int *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  largest<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

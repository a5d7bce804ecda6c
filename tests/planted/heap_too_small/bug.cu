// kind: out-of-bounds
// All threads together allocate 40 MB of a heap of 8 MB.
#include <cuda_runtime.h>

#include <cstdlib>

__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float* own = (float*)malloc(4096);
  own[0] = i < n ? x[i] : 0;  // BUG
  __syncthreads();
  if (i < n) y[i] = 2 * own[0];
  free(own);
}

extern "C" void run() {
  const int n = 40 * 256;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  scale<<<40, 256>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

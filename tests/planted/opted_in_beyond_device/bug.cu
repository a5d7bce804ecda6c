// kind: launch
// The attribute allows 212 KB of dynamic shared memory; with the 16 KB that the kernel declares a block would have 228 KB.
#include <cuda_runtime.h>

__global__ void lookup(const unsigned char* x, float* y, int n) {
  __shared__ float table[4096];
  extern __shared__ unsigned char staged[];
  for (int k = threadIdx.x; k < 4096; k += blockDim.x) table[k] = k * 0.5f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) staged[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = table[staged[n - 1 - i] * 16];
}

extern "C" void run() {
  const int n = 200;
  static unsigned char x[n];
  for (int i = 0; i < n; ++i) x[i] = (unsigned char)i;
  unsigned char* d_x;
  cudaMalloc(&d_x, n * sizeof(unsigned char));
  cudaMemcpy(d_x, x, n * sizeof(unsigned char), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaFuncSetAttribute(lookup, cudaFuncAttributeMaxDynamicSharedMemorySize, 212 * 1024);
  lookup<<<1, 64, 212 * 1024>>>(d_x, d_y, n);  // BUG
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

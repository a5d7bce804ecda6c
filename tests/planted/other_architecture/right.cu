// arch: sm_86
// 96 KB of shared memory fit a block of sm_86, whose limit is 99 KB.
#include <cuda_runtime.h>

__global__ void reverse_long(const float* x, float* y, int n) {
  extern __shared__ float line[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) line[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = line[n - 1 - i];
}

extern "C" void run() {
  const int n = 300, bytes = 96 * 1024;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaFuncSetAttribute(reverse_long, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  reverse_long<<<1, 128, bytes>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

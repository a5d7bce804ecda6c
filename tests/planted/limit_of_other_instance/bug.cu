// kind: launch
// The limit for shared memory is raised for the instance of 64, and the instance of 128 is launched.
#include <cuda_runtime.h>

template <int kThreads>
__global__ void reverse(const float* x, float* y, int n) {
  extern __shared__ float tile[];
  int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = tile[kThreads - 1 - threadIdx.x];
}

extern "C" void run() {
  const int n = 256;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaFuncSetAttribute(reverse<64>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);
  reverse<128><<<n / 128, 128, 65536>>>(d_x, d_y, n);  // BUG
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

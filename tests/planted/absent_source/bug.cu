// kind: mask
// Lane 0 waits outside the branch, and the lanes inside read its value with a mask that leaves it out.
#include <cuda_runtime.h>

__global__ void relative_to_first(const float* x, float* y) {
  int lane = threadIdx.x % 32;
  float v = x[threadIdx.x];
  if (lane != 0) v -= __shfl_sync(0xfffffffe, v, 0);  // BUG
  __syncwarp();
  y[threadIdx.x] = v;
}

extern "C" void run() {
  const int n = 64;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i * 2;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  relative_to_first<<<1, n>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: mask
// All 32 lanes call the shuffle, but its mask names the lower half only.
#include <cuda_runtime.h>

__global__ void half_warp_means(const float* x, float* y) {
  float v = x[threadIdx.x];
  for (int offset = 8; offset > 0; offset >>= 1) {
    v += __shfl_down_sync(0x0000ffff, v, offset, 16);  // BUG
  }
  if (threadIdx.x % 16 == 0) y[threadIdx.x / 16] = v / 16.0f;
}

extern "C" void run() {
  const int n = 32;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n / 16];
  float* d_y;
  cudaMalloc(&d_y, n / 16 * sizeof(float));
  half_warp_means<<<1, n>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n / 16 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

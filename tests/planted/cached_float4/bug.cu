// kind: misaligned
// A read-only load takes four floats from the second float on.
#include <cuda_runtime.h>

__global__ void doubled(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 4) return;
  float4 v = __ldg(reinterpret_cast<const float4*>(x + 1) + i);  // BUG
  y[4 * i] = 2 * v.x;
  y[4 * i + 1] = 2 * v.y;
  y[4 * i + 2] = 2 * v.z;
  y[4 * i + 3] = 2 * v.w;
}

extern "C" void run() {
  const int n = 256;
  static float x[n + 4], y[n];
  for (int i = 0; i < n + 4; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  doubled<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

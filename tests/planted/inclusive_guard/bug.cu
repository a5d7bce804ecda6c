// kind: out-of-bounds
// The guard lets i == n through.
#include <cuda_runtime.h>
#include <cuda_fp16.h>

__global__ void to_half(const float* x, __half* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i] = __float2half(x[i]);  // BUG
}

extern "C" void run() {
  const int n = 70;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i * 0.25f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static __half y[n];
  __half* d_y;
  cudaMalloc(&d_y, n * sizeof(__half));
  to_half<<<1, 96>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(__half), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

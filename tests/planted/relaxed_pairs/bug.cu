// kind: misaligned
// A relaxed load takes pairs of floats from the second float on.
#include <cuda_runtime.h>

__global__ void copy(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a, b;
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "l"(x + 2 * i + 1));  // BUG
  y[i] = a + b;
}

extern "C" void run() {
  const int n = 70;
  static float x[2 * n + 2], y[n];
  for (int i = 0; i < 2 * n + 2; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  copy<<<2, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

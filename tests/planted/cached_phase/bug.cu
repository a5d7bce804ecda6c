// kind: race
// Behind the grid's barrier a load of the read-only cache takes what was written before it.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

__global__ void twice(float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float before;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(before) : "l"(x + i));
  x[i] = 2 * before;
  cooperative_groups::this_grid().sync();
  float other;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(other) : "l"(x + (i + 1) % n));  // BUG
  y[i] = other + before;
}

extern "C" void run() {
  int n = 64;
  float x[64], y[64];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  void* arguments[] = {&d_x, &d_y, &n};
  cudaLaunchCooperativeKernel((void*)twice, dim3(2), dim3(32), arguments);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

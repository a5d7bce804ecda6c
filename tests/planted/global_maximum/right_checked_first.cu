// The plain comparison only saves an atomic where the maximum is larger already, which it stays.
#include <cuda_runtime.h>

__global__ void max_kernel(const float* x, float* best, int n) {
  float v = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v = fmaxf(v, x[i]);
  for (int offset = 16; offset > 0; offset /= 2) v = fmaxf(v, __shfl_down_sync(0xffffffff, v, offset));
  if (threadIdx.x % 32 == 0) {
    int* bits = reinterpret_cast<int*>(best);
    if (__float_as_int(v) > *bits) atomicMax(bits, __float_as_int(v));
  }
}

extern "C" void run() {
  const int n = 700;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 53) % 211;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float best[1];
  for (int i = 0; i < 1; ++i) best[i] = 0.0f;
  float* d_best;
  cudaMalloc(&d_best, sizeof(float));
  cudaMemcpy(d_best, best, sizeof(float), cudaMemcpyHostToDevice);
  max_kernel<<<3, 64>>>(d_x, d_best, n);
  cudaMemcpy(best, d_best, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_best);
}

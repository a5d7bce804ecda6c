// A float3 needs the alignment of a float only.
#include <cuda_runtime.h>
#include <stdint.h>

__global__ void sum_from(const float3* x, float* out, int n) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += 32) {
    float3 v = x[i];
    sum += v.x + v.y + v.z;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
  if (threadIdx.x == 0) *out = sum;
}

extern "C" void run() {
  const int n = 150;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 7;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float out[1];
  float* d_out;
  cudaMalloc(&d_out, sizeof(float));
  sum_from<<<1, 32>>>((const float3*)d_x, d_out, n / 3);
  cudaMemcpy(out, d_out, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_out);
}

// kind: misaligned
// The vectors are loaded from x + 1, which is 4 bytes past a 16-byte boundary.
#include <cuda_runtime.h>
#include <stdint.h>

__global__ void sum_from(const float* x, float* out, int n) {
  float sum = 0.0f;
  const float4* vectors = reinterpret_cast<const float4*>(x);
  for (int i = threadIdx.x; i < n / 4; i += 32) {
    float4 v = vectors[i];  // BUG
    sum += v.x + v.y + v.z + v.w;
  }
  for (int i = n / 4 * 4 + threadIdx.x; i < n; i += 32) sum += x[i];
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
  sum_from<<<1, 32>>>(d_x + 1, d_out, n - 1);
  cudaMemcpy(out, d_out, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_out);
}

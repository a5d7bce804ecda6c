// kind: race
// The only barrier stands before the loop, so a step of the tree reads what the step before is still writing.
#include <cuda_runtime.h>

template <int BLOCK>
__global__ void dot_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n) {
  __shared__ float cache[BLOCK];
  const int tid = threadIdx.x;
  float temp = 0.f;
  for (int i = blockIdx.x * BLOCK + tid; i < n; i += BLOCK * gridDim.x) temp += a[i] * b[i];
  cache[tid] = temp;
  __syncthreads();
#pragma unroll
  for (int s = BLOCK / 2; s > 0; s >>= 1) {
    if (tid < s) {
      cache[tid] += cache[tid + s];  // BUG
    }
  }
  if (tid == 0) out[blockIdx.x] = cache[0];
}

extern "C" void run() {
  const int n = 3000;
  static float a[n];
  for (int i = 0; i < n; ++i) a[i] = (i % 5) * 0.5f;
  float* d_a;
  cudaMalloc(&d_a, n * sizeof(float));
  cudaMemcpy(d_a, a, n * sizeof(float), cudaMemcpyHostToDevice);
  static float b[n];
  for (int i = 0; i < n; ++i) b[i] = (i % 3) - 1.0f;
  float* d_b;
  cudaMalloc(&d_b, n * sizeof(float));
  cudaMemcpy(d_b, b, n * sizeof(float), cudaMemcpyHostToDevice);
  static float out[2];
  float* d_out;
  cudaMalloc(&d_out, 2 * sizeof(float));
  dot_kernel<128><<<2, 128>>>(d_a, d_b, d_out, n);
  cudaMemcpy(out, d_out, 2 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_a);
  cudaFree(d_b);
  cudaFree(d_out);
}

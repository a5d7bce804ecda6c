// kind: uninitialised
// The first kernel's grid is rounded down, so the second kernel reads a tail that nobody wrote.
#include <cuda_runtime.h>

__global__ void gelu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

__global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];  // BUG
}

extern "C" void run() {
  const int n = 200, threads = 64;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i * 0.01f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_hidden;
  cudaMalloc(&d_hidden, n * sizeof(float));
  static float out[n];
  float* d_out;
  cudaMalloc(&d_out, n * sizeof(float));
  gelu<<<n / threads, threads>>>(d_x, d_hidden, n);
  add<<<(n + threads - 1) / threads, threads>>>(d_x, d_hidden, d_out, n);
  cudaMemcpy(out, d_out, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_hidden);
  cudaFree(d_out);
}

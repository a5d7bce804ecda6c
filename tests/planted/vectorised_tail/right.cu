// Whole float4 first, then the tail one by one.
#include <cuda_runtime.h>

__global__ void scale(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int vectors = n / 4;
  if (i < vectors) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= a;
    v.y *= a;
    v.z *= a;
    v.w *= a;
    reinterpret_cast<float4*>(y)[i] = v;
  }
  int tail = vectors * 4 + i;
  if (tail < n) y[tail] = a * x[tail];
}

extern "C" void run() {
  const int n = 1002;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  scale<<<2, 128>>>(d_x, d_y, 3.0f, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The weights are in managed memory, which kernels may read.
#include <cuda_runtime.h>

__global__ void filter(const float* x, const float* weights, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 4 >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < 5; ++k) sum += weights[k] * x[i + k];
  y[i] = sum;
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemset(d_y, 0, n * sizeof(float));
  float* weights;
  cudaMallocManaged(&weights, 5 * sizeof(float));
  for (int k = 0; k < 5; ++k) weights[k] = 0.2f;
  filter<<<1, 96>>>(d_x, weights, d_y, n);
  cudaDeviceSynchronize();
  cudaFree(weights);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

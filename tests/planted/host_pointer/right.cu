// The weights are copied to the device first.
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
  float weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
  float* d_weights;
  cudaMalloc(&d_weights, sizeof(weights));
  cudaMemcpy(d_weights, weights, sizeof(weights), cudaMemcpyHostToDevice);
  filter<<<1, 96>>>(d_x, d_weights, d_y, n);
  cudaFree(d_weights);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

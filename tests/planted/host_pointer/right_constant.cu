// The weights are in constant memory, and a struct of settings is passed by value.
#include <cuda_runtime.h>

struct Settings {
  float scale[2];
  int taps;
};

__constant__ float weights[5];
__device__ float scratch_scale = 1.0f;

__global__ void filter(const float* x, float* y, Settings settings, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + settings.taps - 1 >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < settings.taps; ++k) sum += weights[k] * x[i + k] * settings.scale[k & 1];
  y[i] = sum * scratch_scale;
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
  const float host_weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
  cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights));
  Settings settings = {{1.0f, 0.5f}, 5};
  filter<<<1, 96>>>(d_x, d_y, settings, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The parameter is a reference to managed memory.
#include <cuda_runtime.h>

struct Settings {
  float factor;
  int n;
};

__global__ void scale(const float* x, float* y, const Settings& settings) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < settings.n) y[i] = settings.factor * x[i];
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  Settings* settings;
  cudaMallocManaged(&settings, sizeof(Settings));
  *settings = {2.0f, n};
  scale<<<1, 96>>>(d_x, d_y, *settings);
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

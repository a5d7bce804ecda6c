// kind: misaligned
// The rows have an odd number of floats, so every second row begins between two float2.
#include <cuda_runtime.h>

__global__ void pair_products(const float* x, float* y, int rows, int cols, int pitch) {
  int row = blockIdx.x;
  const float2* pairs = (const float2*)(x + row * pitch);
  for (int p = threadIdx.x; p < cols / 2; p += blockDim.x) {
    float2 v = pairs[p];  // BUG
    y[row * (cols / 2) + p] = v.x * v.y;
  }
}

extern "C" void run() {
  const int rows = 3, cols = 21, pitch = 21;
  static float x[rows * pitch];
  for (int i = 0; i < rows * pitch; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, rows * pitch * sizeof(float));
  cudaMemcpy(d_x, x, rows * pitch * sizeof(float), cudaMemcpyHostToDevice);
  static float y[rows * (cols / 2)];
  float* d_y;
  cudaMalloc(&d_y, rows * (cols / 2) * sizeof(float));
  pair_products<<<rows, 32>>>(d_x, d_y, rows, cols, pitch);
  cudaMemcpy(y, d_y, rows * (cols / 2) * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

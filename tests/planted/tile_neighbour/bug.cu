// kind: out-of-bounds
// The last thread of a row reads column 32 of a tile with 32 columns.
#include <cuda_runtime.h>

__global__ void forward_difference(const float* x, float* y, int width, int height) {
  __shared__ float tile[8][32];
  int col = blockIdx.x * 32 + threadIdx.x;
  int row = blockIdx.y * 8 + threadIdx.y;
  bool inside = col < width && row < height;
  tile[threadIdx.y][threadIdx.x] = inside ? x[row * width + col] : 0.0f;
  __syncthreads();
  float difference = tile[threadIdx.y][threadIdx.x + 1] - tile[threadIdx.y][threadIdx.x];  // BUG
  if (inside) y[row * width + col] = col + 1 < width ? difference : 0.0f;
}

extern "C" void run() {
  const int width = 60, height = 10;
  static float x[width * height];
  for (int i = 0; i < width * height; ++i) x[i] = i * 0.5f;
  float* d_x;
  cudaMalloc(&d_x, width * height * sizeof(float));
  cudaMemcpy(d_x, x, width * height * sizeof(float), cudaMemcpyHostToDevice);
  static float y[width * height];
  float* d_y;
  cudaMalloc(&d_y, width * height * sizeof(float));
  forward_difference<<<dim3(2, 2), dim3(32, 8)>>>(d_x, d_y, width, height);
  cudaMemcpy(y, d_y, width * height * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: launch
// A block has 64 x 32 = 2048 threads, and 1024 is the most.
#include <cuda_runtime.h>

__global__ void add_one(float* x, int width, int height) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (col < width && row < height) x[row * width + col] += 1.0f;
}

extern "C" void run() {
  const int width = 64, height = 32;
  static float x[width * height];
  for (int i = 0; i < width * height; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, width * height * sizeof(float));
  cudaMemcpy(d_x, x, width * height * sizeof(float), cudaMemcpyHostToDevice);
  dim3 block(64, 32);
  dim3 grid((width + block.x - 1) / block.x, (height + block.y - 1) / block.y);
  add_one<<<grid, block>>>(d_x, width, height);  // BUG
  cudaMemcpy(x, d_x, width * height * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
}

// The values move within a warp only, so __syncwarp is enough.
#include <cuda_runtime.h>

__global__ void rotate(const float* x, float* y) {
  __shared__ float cells[128];
  int t = threadIdx.x;
  cells[t] = x[blockIdx.x * blockDim.x + t];
  __syncwarp();
  int from = (t & ~31) | ((t + 31) & 31);
  y[blockIdx.x * blockDim.x + t] = cells[from];
}

extern "C" void run() {
  const int n = 256;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  rotate<<<2, 128>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: race
// also: uninitialised
// __syncwarp orders the lanes of one warp only, but the lane before the first belongs to another warp.
#include <cuda_runtime.h>

__global__ void rotate(const float* x, float* y) {
  __shared__ float cells[128];
  int t = threadIdx.x;
  cells[t] = x[blockIdx.x * blockDim.x + t];  // BUG
  __syncwarp();
  int from = (t + blockDim.x - 1) % blockDim.x;
  y[blockIdx.x * blockDim.x + t] = cells[from];  // BUG
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

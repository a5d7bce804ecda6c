// kind: out-of-bounds
// A filter has five weights in constant memory, and its loop runs once too often.
#include <cuda_runtime.h>

namespace {
__constant__ float weights[5] = {1, 2, 3, 2, 1};
__constant__ float bias[5] = {1};
}  // namespace

__global__ void filter(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* const own = weights;
  if (i + 4 >= n) return;
  float sum = bias[0];
  for (int k = 0; k <= 5; ++k) sum += own[k] * x[(i + k) % n];  // BUG
  y[i] = sum;
}

extern "C" void run() {
  const int n = 70;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  filter<<<3, 32>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// Another warp of the block sets the flag, with a fence between the value and the flag.
#include <cuda_runtime.h>

__global__ void two_warps(const float* x, float* y, int n) {
  __shared__ volatile int ready;
  __shared__ volatile float value;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x == blockDim.x - 1) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i];
    value = sum;
    __threadfence_block();
    ready = 1;
  }
  if (threadIdx.x == 0) {
    while (ready == 0) {
    }
    __threadfence_block();
    *y = value / n;
  }
}

extern "C" void run() {
  const int n = 40;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[1];
  float* d_y;
  cudaMalloc(&d_y, sizeof(float));
  two_warps<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

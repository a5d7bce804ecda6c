// The barrier after the stores makes every cell visible before the first step of the tree.
#include <cuda_runtime.h>

__global__ void block_sum(const float* x, float* sums, int n) {
  __shared__ float partial[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  partial[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) partial[threadIdx.x] += partial[threadIdx.x + stride];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

extern "C" void run() {
  const int n = 1000, blocks = (n + 255) / 256;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 7;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float sums[blocks];
  float* d_sums;
  cudaMalloc(&d_sums, blocks * sizeof(float));
  block_sum<<<blocks, 256>>>(d_x, d_sums, n);
  cudaMemcpy(sums, d_sums, blocks * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

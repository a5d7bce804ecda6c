// A barrier stands between two reductions that use the same storage.
#include <cub/block/block_reduce.cuh>
#include <cuda_runtime.h>

__global__ void moments(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ float mean;
  const float value = x[blockIdx.x * 128 + threadIdx.x];
  const float sum = Reduce(storage).Sum(value);
  __syncthreads();
  const float squares = Reduce(storage).Sum(value * value);
  if (threadIdx.x == 0) mean = sum / 128;
  __syncthreads();
  y[blockIdx.x * 128 + threadIdx.x] = value - mean;
  if (threadIdx.x == 0) y[blockIdx.x * 128] = squares;
}

extern "C" void run() {
  const int n = 512;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = 1 + i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  moments<<<4, 128>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

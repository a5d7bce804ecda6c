// Threads without an element bring a zero to the reduction.
#include <cub/block/block_reduce.cuh>
#include <cuda_runtime.h>

__global__ void normalised(const float* x, float* y, int n) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage storage;
  __shared__ float total;
  const int i = threadIdx.x;
  const float sum = Reduce(storage).Sum(i < n ? x[i] : 0.0f);
  if (i == 0) total = sum;
  __syncthreads();
  if (i < n) y[i] = x[i] / total;
}

extern "C" void run() {
  const int n = 96;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = 1 + i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  normalised<<<1, 128>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: race
// The reduction writes to the storage that it shares with the load, whose threads still read there.
#include <cub/cub.cuh>
#include <cuda_runtime.h>

__global__ void sums(const float* x, float* y) {
  using Load = cub::BlockLoad<float, 64, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Reduce = cub::BlockReduce<float, 64>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Reduce::TempStorage reduce;
  } storage;
  float items[4];
  Load(storage.load).Load(x + blockIdx.x * 256, items);  // BUG
  const float sum = Reduce(storage.reduce).Sum(items);  // BUG
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
  sums<<<2, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

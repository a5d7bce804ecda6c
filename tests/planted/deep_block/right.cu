// The long dimension of the block is x.
#include <cuda_runtime.h>

__global__ void depth_sum(const int* x, int* sums, int depth) {
  int z = threadIdx.x;
  int v = z < depth ? x[blockIdx.x * depth + z] : 0;
  atomicAdd(&sums[blockIdx.x], v);
}

extern "C" void run() {
  const int columns = 3, depth = 100;
  static int x[columns * depth];
  for (int i = 0; i < columns * depth; ++i) x[i] = i % 5;
  int* d_x;
  cudaMalloc(&d_x, columns * depth * sizeof(int));
  cudaMemcpy(d_x, x, columns * depth * sizeof(int), cudaMemcpyHostToDevice);
  static int sums[columns];
  int* d_sums;
  cudaMalloc(&d_sums, columns * sizeof(int));
  cudaMemset(d_sums, 0, columns * sizeof(int));
  depth_sum<<<columns, dim3(128, 1, 1)>>>(d_x, d_sums, depth);
  cudaMemcpy(sums, d_sums, columns * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

// kind: uninitialised
// The result is gathered with atomicAdd in memory that nobody set to zero.
#include <cuda_runtime.h>

__global__ void count_by_sign(const float* x, int* counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[x[i] < 0.0f ? 0 : x[i] > 0.0f ? 2 : 1], 1);  // BUG
}

extern "C" void run() {
  const int n = 100;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 5 - 2.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static int counts[3];
  int* d_counts;
  cudaMalloc(&d_counts, 3 * sizeof(int));
  count_by_sign<<<2, 64>>>(d_x, d_counts, n);
  cudaMemcpy(counts, d_counts, 3 * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_counts);
}

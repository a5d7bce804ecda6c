// The doubles, which need the larger alignment, are carved out first.
#include <cuda_runtime.h>

__global__ void group_sums(const int* group, const double* x, double* sums, int n, int groups) {
  extern __shared__ __align__(16) char memory[];
  double* totals = (double*)memory;
  int* counts = (int*)(totals + groups);
  if (threadIdx.x < groups) {
    counts[threadIdx.x] = 0;
    totals[threadIdx.x] = 0.0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&counts[group[i]], 1);
    atomicAdd(&totals[group[i]], x[i]);
  }
  __syncthreads();
  if (threadIdx.x < groups) sums[threadIdx.x] = totals[threadIdx.x] / max(counts[threadIdx.x], 1);
}

extern "C" void run() {
  const int n = 90, groups = 5;
  static int group[n];
  for (int i = 0; i < n; ++i) group[i] = i % 5;
  int* d_group;
  cudaMalloc(&d_group, n * sizeof(int));
  cudaMemcpy(d_group, group, n * sizeof(int), cudaMemcpyHostToDevice);
  static double x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  double* d_x;
  cudaMalloc(&d_x, n * sizeof(double));
  cudaMemcpy(d_x, x, n * sizeof(double), cudaMemcpyHostToDevice);
  static double sums[groups];
  double* d_sums;
  cudaMalloc(&d_sums, groups * sizeof(double));
  group_sums<<<1, 64, groups * (sizeof(int) + sizeof(double))>>>(d_group, d_x, d_sums, n, groups);
  cudaMemcpy(sums, d_sums, groups * sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(d_group);
  cudaFree(d_x);
  cudaFree(d_sums);
}

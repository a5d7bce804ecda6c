// The cooperative launch has as many blocks as are resident at once.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void two_phases(const float* x, float* parts, float* y, int n) {
  cg::grid_group grid = cg::this_grid();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int k = i; k < min(i + (int)blockDim.x, n); ++k) sum += x[k];
    parts[blockIdx.x] = sum;
  }
  grid.sync();
  float total = 0.0f;
  for (int b = 0; b < (n + blockDim.x - 1) / blockDim.x; ++b) total += parts[b];
  if (i < n) y[i] = x[i] / total;
}

extern "C" void run() {
  const int n = 100, blocks = 4;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = 1.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_parts;
  cudaMalloc(&d_parts, blocks * sizeof(float));
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  int count = n;
  void* arguments[] = {&d_x, &d_parts, &d_y, &count};
  cudaLaunchCooperativeKernel((void*)two_phases, dim3(blocks), dim3(32), arguments, 0, 0);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_parts);
  cudaFree(d_y);
}

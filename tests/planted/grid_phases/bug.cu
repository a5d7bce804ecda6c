// kind: race
// also: uninitialised
// The blocks read each other's sums without the grid's barrier between the phases.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void center(float* x, float* sums, int n) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  __shared__ float cells[64];
  int i = grid.thread_rank();
  float v = i < n ? x[i] : 0.0f;
  cells[block.thread_rank()] = v;
  block.sync();
  if (block.thread_rank() == 0) {
    float sum = 0.0f;
    for (int t = 0; t < block.size(); ++t) sum += cells[t];
    sums[block.group_index().x] = sum;  // BUG
  }
  float total = 0.0f;
  for (int b = 0; b < gridDim.x; ++b) total += sums[b];  // BUG
  if (i < n) x[i] = v - total / n;
}

extern "C" void run() {
  int n = 150;
  static float host[150];
  for (int i = 0; i < n; ++i) host[i] = i % 12;
  float *x, *sums;
  cudaMalloc(&x, sizeof(host));
  cudaMalloc(&sums, 3 * sizeof(float));
  cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice);
  void* arguments[] = {&x, &sums, &n};
  cudaLaunchCooperativeKernel((void*)center, dim3(3), dim3(64), arguments, 0, nullptr);
  cudaMemcpy(host, x, sizeof(host), cudaMemcpyDeviceToHost);
  cudaFree(x);
  cudaFree(sums);
}

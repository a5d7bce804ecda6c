// All lanes of a tile stay, those beyond n with the value that changes nothing.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void tile_maxima(const int* x, int* best, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = i < n ? x[i] : -2147483647;
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  for (int distance = 4; distance > 0; distance >>= 1) {
    v = max(v, tile.shfl_down(v, distance));
  }
  if (tile.thread_rank() == 0) atomicMax(best, v);
}

extern "C" void run() {
  const int n = 45;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = -5 - (i * 7) % 20;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int best[1];
  for (int i = 0; i < 1; ++i) best[i] = -1000;
  int* d_best;
  cudaMalloc(&d_best, sizeof(int));
  cudaMemcpy(d_best, best, sizeof(int), cudaMemcpyHostToDevice);
  tile_maxima<<<1, 64>>>(d_x, d_best, n);
  cudaMemcpy(best, d_best, sizeof(best), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_best);
}

// kind: race
// also: uninitialised
// The lanes of a tile exchange values through shared memory without the tile's sync().
#include <cooperative_groups.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void tile_sums(const int* x, int* sums) {
  __shared__ int cells[64];
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int v = x[threadIdx.x];
  int* mine = cells + threadIdx.x / 16 * 16;
  for (int distance = 8; distance > 0; distance /= 2) {
    mine[tile.thread_rank()] = v;  // BUG
    v += mine[tile.thread_rank() ^ distance];  // BUG
  }
  if (tile.thread_rank() == 0) sums[threadIdx.x / 16] = v;
}

extern "C" void run() {
  const int n = 64;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int sums[n / 16];
  int* d_sums;
  cudaMalloc(&d_sums, n / 16 * sizeof(int));
  tile_sums<<<1, n>>>(d_x, d_sums);
  cudaMemcpy(sums, d_sums, n / 16 * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

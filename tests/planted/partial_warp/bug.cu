// kind: mask
// The second warp of the block has 16 lanes, and lane 0 of it adds what lane 16 would hold.
#include <cuda_runtime.h>

__global__ void warp_totals(const int* x, int* totals) {
  int v = x[threadIdx.x];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) {
    v += __shfl_down_sync(0xffffffff, v, offset);  // BUG
  }
  if (lane == 0) totals[warp] = v;
}

extern "C" void run() {
  const int n = 48;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int totals[2];
  int* d_totals;
  cudaMalloc(&d_totals, 2 * sizeof(int));
  warp_totals<<<1, n>>>(d_x, d_totals);
  cudaMemcpy(totals, d_totals, 2 * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_totals);
}

// The mask and the width of the shuffles fit the number of lanes that the warp has.
#include <cuda_runtime.h>

__global__ void warp_totals(const int* x, int* totals) {
  int v = x[threadIdx.x];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int lanes = min(32, (int)blockDim.x - warp * 32);
  unsigned mask = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
  for (int offset = lanes / 2; offset > 0; offset /= 2) v += __shfl_down_sync(mask, v, offset, lanes);
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

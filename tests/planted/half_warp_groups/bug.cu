// kind: race
// also: uninitialised
// The halves of a warp are ordered each for itself, but a lane reads a cell of the other half.
#include <cuda_runtime.h>

__global__ void sort_pairs(const int* x, int* y) {
  __shared__ int cells[64];
  int t = threadIdx.x;
  unsigned half = t & 16 ? 0xffff0000u : 0x0000ffffu;
  int v = x[t];
  for (int turn = 0; turn < 16; ++turn) {
    cells[t] = v;  // BUG
    __syncwarp(half);
    int last = 31, place = t & 31;
    int other = (place & 1) == (turn & 1) ? place + 1 : place - 1;
    if (other >= 0 && other <= last) {
      int w = cells[t - place + other];  // BUG
      v = place < other ? min(v, w) : max(v, w);
    }
    __syncwarp(half);
  }
  y[t] = v;
}

extern "C" void run() {
  const int n = 64;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 37) % 61;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  sort_pairs<<<1, n>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

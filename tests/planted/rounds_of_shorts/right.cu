// Rounds reuse an array of shorts, between two barriers.
#include <cuda_runtime.h>

__global__ void vote(const int* x, short* y, int n) {
  __shared__ short seen[64];
  int i = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    seen[i] = (short)(x[i] + round);
    __syncthreads();
    short sum = seen[i];
    for (int k = 1; k < 4; ++k) sum = (short)(sum + seen[i ^ k]);
    if (i % 2 == 0) *reinterpret_cast<int*>(y + 64 * round + i) = sum;
    __syncthreads();
  }
}

extern "C" void run() {
  const int n = 64;
  static int x[n];
  static short y[3 * n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  int* d_x;
  short* d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  vote<<<1, n>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: race
// also: uninitialised
// exhaustive: deadlock
// The reading warp does not wait for the writing one.
#include <cuda_runtime.h>

#define MEET(number, threads) asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory")
#define ARRIVE(number, threads) asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory")

// Warp 0 writes a tile, warp 1 reads it; warps 2 and 3 do the same with another.
__global__ void pairs(const float* x, float* y) {
  __shared__ float tile[2][32];
  const int pair = threadIdx.x / 64, lane = threadIdx.x % 32;
  for (int c = 0; c < 8; ++c) {
    const int first = 64 * c + 32 * pair;
    if (threadIdx.x / 32 % 2 == 0) {
      if (c > 0) MEET(1 + pair, 64);
      tile[pair][lane] = x[first + lane];
      MEET(3 + pair, 64);
    } else {
      ARRIVE(3 + pair, 64);
      y[first + lane] = 3 * tile[pair][31 - lane];  // BUG
      if (c < 7) ARRIVE(1 + pair, 64);
    }
  }
}

extern "C" void run() {
  const int n = 512;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  pairs<<<1, 128>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// Each thread reads its neighbour's number of the round. Rounds take turns at two rows, so a row is
// written again only when all have arrived behind their reads of it.
#include <cuda/barrier>
#include <cuda_runtime.h>

__global__ void shifted_sums(const float* x, float* y, int rounds) {
  __shared__ cuda::barrier<cuda::thread_scope_block> written;
  __shared__ float row[2][64];
  if (threadIdx.x == 0) init(&written, 64);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    row[i % 2][threadIdx.x] = x[64 * i + threadIdx.x];
    written.arrive_and_wait();
    sum += row[i % 2][(threadIdx.x + 1) % 64];
  }
  y[threadIdx.x] = sum;
}

extern "C" void run() {
  const int rounds = 4;
  static float x[64 * rounds], y[64];
  for (int i = 0; i < 64 * rounds; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  shifted_sums<<<1, 64>>>(d_x, d_y, rounds);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

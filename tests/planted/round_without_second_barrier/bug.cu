// kind: race
// Each thread reads its neighbour's number of the round. In the next round it writes its own again, although only the
// neighbour's arrival, and not its read, is known to be over.
#include <cuda/barrier>
#include <cuda_runtime.h>

__global__ void shifted_sums(const float* x, float* y, int rounds) {
  __shared__ cuda::barrier<cuda::thread_scope_block> written;
  __shared__ float row[64];
  if (threadIdx.x == 0) init(&written, 64);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    row[threadIdx.x] = x[64 * i + threadIdx.x];  // BUG
    written.arrive_and_wait();
    sum += row[(threadIdx.x + 1) % 64];  // BUG
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

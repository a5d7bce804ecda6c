// Behind the last copy of the group the threads wait for all.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void mirrored(const float* x, float* y) {
  __shared__ float tile[2][64];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, tile[0], x, sizeof tile[0]);
  for (int c = 0; c < 4; ++c) {
    if (c < 3) cg::memcpy_async(block, tile[(c + 1) % 2], x + 64 * (c + 1), sizeof tile[0]);
    if (c < 3) cg::wait_prior<1>(block);
    else cg::wait(block);
    y[64 * c + threadIdx.x] = 2 * tile[c % 2][63 - threadIdx.x];
    block.sync();
  }
}

extern "C" void run() {
  const int n = 256;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  mirrored<<<1, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

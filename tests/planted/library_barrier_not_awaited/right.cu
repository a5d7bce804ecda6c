// The threads arrive, do something else, and wait before they read the tile.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda_runtime.h>

#include <utility>

namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void mirrored(const float* x, float* y) {
  __shared__ barrier full;
  __shared__ alignas(16) float tile[128];
  const auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&full, block.size());
  block.sync();
  for (int c = 0; c < 4; ++c) {
    cuda::memcpy_async(block, tile, x + 128 * c, cuda::aligned_size_t<16>(sizeof tile), full);
    barrier::arrival_token token = full.arrive();
    const float factor = 1.0f + c;
    full.wait(std::move(token));
    const float value = tile[127 - threadIdx.x];
    y[128 * c + threadIdx.x] = factor * value;
    full.arrive_and_wait();
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
  mirrored<<<1, 128>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

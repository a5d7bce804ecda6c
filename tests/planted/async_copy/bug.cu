// kind: race
// also: uninitialised
// The threads use a tile that the block copies together, without waiting for the copy.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void correlate(const float* x, const float* taps, float* y, int chunks) {
  __shared__ float tile[64];
  auto block = cg::this_thread_block();
  float sum = 0.0f;
  for (int c = 0; c < chunks; ++c) {
    cg::memcpy_async(block, tile, x + c * 64, sizeof(float) * 64);  // BUG
    for (int k = 0; k < 4; ++k) sum += taps[k] * tile[(threadIdx.x + k) % 64];  // BUG
    block.sync();
  }
  y[threadIdx.x] = sum;
}

extern "C" void run() {
  const int chunks = 3;
  static float x[chunks * 64];
  for (int i = 0; i < chunks * 64; ++i) x[i] = i % 10;
  float* d_x;
  cudaMalloc(&d_x, chunks * 64 * sizeof(float));
  cudaMemcpy(d_x, x, chunks * 64 * sizeof(float), cudaMemcpyHostToDevice);
  static float taps[4];
  for (int i = 0; i < 4; ++i) taps[i] = 0.5f * i;
  float* d_taps;
  cudaMalloc(&d_taps, 4 * sizeof(float));
  cudaMemcpy(d_taps, taps, 4 * sizeof(float), cudaMemcpyHostToDevice);
  static float y[64];
  float* d_y;
  cudaMalloc(&d_y, 64 * sizeof(float));
  correlate<<<1, 64>>>(d_x, d_taps, d_y, chunks);
  cudaMemcpy(y, d_y, 64 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_taps);
  cudaFree(d_y);
}

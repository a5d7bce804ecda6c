// The consumers release a stage behind their last read of it.
#include <cooperative_groups.h>
#include <cuda/pipeline>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__global__ void mirrored(const float* x, float* y) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  __shared__ float tile[2][64];
  const auto block = cg::this_thread_block();
  const bool produces = threadIdx.x < 32;
  auto pipe = cuda::make_pipeline(block, &state,
                                  produces ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
  const auto warp = cg::tiled_partition<32>(block);
  if (produces) {
    for (int c = 0; c < 8; ++c) {
      pipe.producer_acquire();
      cuda::memcpy_async(warp, tile[c % 2], x + 64 * c, sizeof tile[0], pipe);
      pipe.producer_commit();
    }
  } else {
    for (int c = 0; c < 8; ++c) {
      pipe.consumer_wait();
      y[64 * c + threadIdx.x - 32] = 2 * tile[c % 2][95 - threadIdx.x];
      pipe.consumer_release();
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
  mirrored<<<1, 96>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The barrier expects the bytes that the copy brings.
#include <cuda/ptx>
#include <cuda_runtime.h>

namespace ptx = cuda::ptx;

__global__ void streamed(const float* x, float* y) {
  __shared__ alignas(16) float tile[2][128];
  __shared__ std::uint64_t full[2];
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full[0], 1);
    ptx::mbarrier_init(&full[1], 1);
  }
  __syncthreads();
  for (int c = 0; c < 4; ++c) {
    std::uint64_t* const barrier = &full[c % 2];
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier, 512);
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile[c % 2], x + 128 * c, 512, barrier);
    }
    while (!ptx::mbarrier_try_wait_parity(barrier, c / 2 % 2)) {
    }
    for (int i = threadIdx.x; i < 128; i += 32) y[128 * c + i] = 3 * tile[c % 2][127 - i];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
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
  streamed<<<1, 32>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: deadlock
// exhaustive: race
// Three warps take turns and wait for the turn before by the parity of one barrier. A warp that comes two turns early
// finds the parity of three turns ago, and goes on.
#include <cuda/ptx>
#include <cuda_runtime.h>

namespace ptx = cuda::ptx;

__global__ void horner(const float* x, float* y, int n) {
  __shared__ float sums[32];
  __shared__ std::uint64_t done[3];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 3) ptx::mbarrier_init(&done[threadIdx.x], 32);
  if (threadIdx.x < 32) sums[lane] = 0;
  __syncthreads();
  for (int turn = threadIdx.x / 32; turn < n; turn += 3) {
    const float mine = x[32 * turn + lane];
    if (turn > 0) {
      while (!ptx::mbarrier_try_wait_parity(&done[0], (turn - 1) % 2)) {  // BUG
      }
    }
    sums[lane] = 2 * sums[lane] + mine;
    ptx::mbarrier_arrive(&done[0]);
  }
  __syncthreads();
  if (threadIdx.x < 32) y[lane] = sums[lane];
}

extern "C" void run() {
  const int n = 9;
  static float x[32 * n], y[32];
  for (int i = 0; i < 32 * n; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof(x));
  cudaMalloc(&d_y, sizeof(y));
  cudaMemcpy(d_x, x, sizeof(x), cudaMemcpyHostToDevice);
  horner<<<1, 96>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, sizeof(y), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

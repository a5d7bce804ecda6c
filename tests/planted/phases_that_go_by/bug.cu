// kind: deadlock
// order: random
// exhaustive: race
// A warp announces each row by a phase of one barrier and waits for nobody. A reader that is late by two phases finds the
// parity of the phase before its own, and counts wrongly from then on. Readers that keep up get every row.
#include <cuda/ptx>
#include <cuda_runtime.h>

namespace ptx = cuda::ptx;

__global__ void sums_of_rows(const float* x, float* y, int rows) {
  __shared__ float row[16][32];
  __shared__ std::uint64_t written;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) ptx::mbarrier_init(&written, 32);
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < rows; ++i) {
    if (threadIdx.x < 32) {
      row[i][lane] = x[32 * i + lane];
      ptx::mbarrier_arrive(&written);
      __nanosleep(1000);
    } else {
      while (!ptx::mbarrier_try_wait_parity(&written, i % 2)) {  // BUG
      }
      sum += row[i][lane];
    }
  }
  if (threadIdx.x >= 32) y[lane] = sum;
}

extern "C" void run() {
  const int rows = 16;
  static float x[32 * rows], y[32];
  for (int i = 0; i < 32 * rows; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof(x));
  cudaMalloc(&d_y, sizeof(y));
  cudaMemcpy(d_x, x, sizeof(x), cudaMemcpyHostToDevice);
  sums_of_rows<<<1, 64>>>(d_x, d_y, rows);
  cudaMemcpy(y, d_y, sizeof(y), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

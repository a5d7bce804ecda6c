// kind: race
// The copy back may miss what the threads have just written: no fence shows it to the asynchronous proxy.
#include <cuda_runtime.h>

using Barrier = unsigned long long;

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__global__ void back(const float* x, float* y) {
  __shared__ alignas(16) float tile[512];
  for (int i = threadIdx.x; i < 512; i += 64) tile[i] = 3 * x[511 - i];  // BUG
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 2048;" ::"l"(y), "r"(at(tile)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
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
  back<<<1, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

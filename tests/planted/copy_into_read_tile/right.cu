// A barrier lies between the last read of a tile and the copy that overwrites it.
#include <cuda_runtime.h>

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void copy(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(to)), "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

__global__ void scale(const float* x, float* y) {
  __shared__ float tile[2][64];
  copy(&tile[0][threadIdx.x], x + threadIdx.x);
  commit();
  for (int c = 0; c < 4; ++c) {
    if (c < 3) copy(&tile[(c + 1) % 2][threadIdx.x], x + (c + 1) * 64 + threadIdx.x);
    commit();
    wait<1>();
    __syncthreads();
    y[c * 64 + threadIdx.x] = 2 * tile[c % 2][63 - threadIdx.x];
    __syncthreads();
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
  scale<<<1, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

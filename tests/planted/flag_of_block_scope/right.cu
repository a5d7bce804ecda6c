// One block waits for another one's flag with acquire and release of the device's scope.
#include <cuda_runtime.h>

__global__ void pass_on(const float* x, float* between, unsigned* flags, float* y) {
  const int pair = blockIdx.x / 2, i = pair * blockDim.x + threadIdx.x;
  if (blockIdx.x % 2 == 0) {
    between[i] = 2 * x[i];
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flags + pair) : "memory");
  } else {
    if (threadIdx.x == 0) {
      unsigned is_there = 0;
      while (is_there == 0) {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_there) : "l"(flags + pair) : "memory");
      }
    }
    __syncthreads();
    y[i] = between[i];
  }
}

extern "C" void run() {
  const int pairs = 2, n = 32 * pairs;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float *d_x, *d_between, *d_y;
  unsigned* d_flags;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_between, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMalloc(&d_flags, pairs * sizeof(unsigned));
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemset(d_flags, 0, pairs * sizeof(unsigned));
  pass_on<<<2 * pairs, 32>>>(d_x, d_between, d_flags, d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_between);
  cudaFree(d_y);
  cudaFree(d_flags);
}

// Whichever lanes are active together in the branch count up with one atomic; any grouping of them will do.
#include <cuda_runtime.h>

__device__ int count_up(int* counter) {
  int lane = threadIdx.x % 32;
  unsigned mask = __match_any_sync(__activemask(), (unsigned long long)counter);
  int leader = __ffs(mask) - 1;
  int before = 0;
  if (lane == leader) before = atomicAdd(counter, __popc(mask));
  before = __shfl_sync(mask, before, leader);
  return before + __popc(mask & ((1u << lane) - 1));
}

__global__ void sum_of_large(const float* x, float* total, int* any_large) {
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  bool large = v > 10.0f;
  if (large) {
    count_up(any_large);
    atomicAdd(total, v);
  }
}

extern "C" void run() {
  const int n = 128;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 32;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float total[1];
  float* d_total;
  cudaMalloc(&d_total, sizeof(float));
  cudaMemset(d_total, 0, sizeof(float));
  static int any_large[1];
  int* d_any_large;
  cudaMalloc(&d_any_large, sizeof(int));
  cudaMemset(d_any_large, 0, sizeof(int));
  sum_of_large<<<2, 64>>>(d_x, d_total, d_any_large);
  cudaMemcpy(total, d_total, sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(any_large, d_any_large, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_total);
  cudaFree(d_any_large);
}

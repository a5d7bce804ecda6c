// kind: mask
// The mask was voted with v > 0, but lanes with v == 0 enter the branch too.
#include <cuda_runtime.h>

// One atomic a warp reserves places for all lanes that keep their value.
__global__ void filter_non_negative(const int* x, int* kept, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x & 31;
  int v = i < n ? x[i] : -1;
  unsigned mask = __ballot_sync(0xffffffff, v > 0);
  if (v >= 0) {
    int leader = __ffs(mask) - 1;
    int base = 0;
    if (lane == leader) base = atomicAdd(count, __popc(mask));
    base = __shfl_sync(mask, base, leader);  // BUG
    kept[base + __popc(mask & ((1u << lane) - 1))] = v;
  }
}

extern "C" void run() {
  const int n = 100;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 4 - 1;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int kept[n];
  int* d_kept;
  cudaMalloc(&d_kept, n * sizeof(int));
  cudaMemset(d_kept, 0, n * sizeof(int));
  static int count[1];
  int* d_count;
  cudaMalloc(&d_count, sizeof(int));
  cudaMemset(d_count, 0, sizeof(int));
  filter_non_negative<<<2, 64>>>(d_x, d_kept, d_count, n);
  cudaMemcpy(kept, d_kept, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(count, d_count, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_kept);
  cudaFree(d_count);
}

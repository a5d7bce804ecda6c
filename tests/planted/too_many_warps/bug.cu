// kind: out-of-bounds
// There is room for the sums of 8 warps, and the block has 12.
#include <cuda_runtime.h>

__global__ void block_sums(const int* x, int* sums, int n) {
  __shared__ int warp_sums[8];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = i < n ? x[i] : 0;
  v = __reduce_add_sync(0xffffffffu, v);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane == 0) warp_sums[warp] = v;  // BUG
  __syncthreads();
  if (warp == 0) {
    v = lane < blockDim.x / 32 ? warp_sums[lane] : 0;  // BUG
    v = __reduce_add_sync(0xffffffffu, v);
    if (lane == 0) sums[blockIdx.x] = v;
  }
}

extern "C" void run() {
  const int n = 700;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 3;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int sums[2];
  int* d_sums;
  cudaMalloc(&d_sums, 2 * sizeof(int));
  block_sums<<<2, 384>>>(d_x, d_sums, n);
  cudaMemcpy(sums, d_sums, 2 * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

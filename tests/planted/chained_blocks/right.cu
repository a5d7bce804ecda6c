// Every block waits for the block before it, and the first one for nobody.
#include <cuda_runtime.h>

// The running total is handed from block to block.
__global__ void chained_scan(const int* x, int* y, volatile int* totals, int* flags, int n) {
  __shared__ int carry;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int lane = threadIdx.x;
  int v = i < n ? x[i] : 0;
  for (int d = 1; d < 32; d *= 2) {
    int left = __shfl_up_sync(0xffffffff, v, d);
    if (lane >= d) v += left;
  }
  if (lane == 31) {
    int before = 0;
    if (blockIdx.x > 0) {
      while (atomicAdd(&flags[blockIdx.x - 1], 0) == 0) {
      }
      __threadfence();
      before = totals[blockIdx.x - 1];
    }
    totals[blockIdx.x] = before + v;
    __threadfence();
    atomicExch(&flags[blockIdx.x], 1);
    carry = before;
  }
  __syncthreads();
  if (i < n) y[i] = carry + v;
}

extern "C" void run() {
  const int n = 100, blocks = (n + 31) / 32;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 3;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  static int totals[blocks + 1];
  int* d_totals;
  cudaMalloc(&d_totals, (blocks + 1) * sizeof(int));
  cudaMemset(d_totals, 0, (blocks + 1) * sizeof(int));
  static int flags[blocks + 1];
  int* d_flags;
  cudaMalloc(&d_flags, (blocks + 1) * sizeof(int));
  cudaMemset(d_flags, 0, (blocks + 1) * sizeof(int));
  chained_scan<<<blocks, 32>>>(d_x, d_y, d_totals, d_flags, n);
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(totals, d_totals, (blocks + 1) * sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(flags, d_flags, (blocks + 1) * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  cudaFree(d_totals);
  cudaFree(d_flags);
}

// The sums of earlier blocks are read by a second launch, which begins when the first has ended.
#include <cuda_runtime.h>

__device__ int exclusive_in_block(int v, int* cells) {
  int t = threadIdx.x;
  cells[t] = v;
  __syncthreads();
  for (int d = 1; d < blockDim.x; d <<= 1) {
    int left = t >= d ? cells[t - d] : 0;
    __syncthreads();
    cells[t] += left;
    __syncthreads();
  }
  return cells[t] - v;
}

__global__ void scan_blocks(const int* x, int* y, int* block_sums, int n) {
  __shared__ int cells[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int v = i < n ? x[i] : 0;
  int before = exclusive_in_block(v, cells);
  if (threadIdx.x == blockDim.x - 1) block_sums[blockIdx.x] = before + v;
  if (i < n) y[i] = before;
}

__global__ void add_offsets(int* y, const int* block_sums, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int offset = 0;
  for (int b = 0; b < blockIdx.x; ++b) offset += block_sums[b];
  if (i < n) y[i] += offset;
}

extern "C" void run() {
  const int n = 300, blocks = (n + 63) / 64;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 5;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  int* d_block_sums;
  cudaMalloc(&d_block_sums, blocks * sizeof(int));
  scan_blocks<<<blocks, 64>>>(d_x, d_y, d_block_sums, n);
  add_offsets<<<blocks, 64>>>(d_y, d_block_sums, n);
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  cudaFree(d_block_sums);
}

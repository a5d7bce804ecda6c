// A __threadfence stands between storing a partial sum and counting the block as done.
#include <cuda_runtime.h>

__device__ unsigned int blocks_done = 0;

template <int BLOCK>
__device__ float block_sum(float v, float* cache) {
  cache[threadIdx.x] = v;
  __syncthreads();
  for (int s = BLOCK / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) cache[threadIdx.x] += cache[threadIdx.x + s];
    __syncthreads();
  }
  return cache[0];
}

template <int BLOCK>
__global__ void sum_single_pass(const float* x, float* partial, float* total, int n) {
  __shared__ float cache[BLOCK];
  __shared__ bool is_last_block;
  float v = 0.0f;
  for (int i = blockIdx.x * BLOCK + threadIdx.x; i < n; i += BLOCK * gridDim.x) v += x[i];
  float sum = block_sum<BLOCK>(v, cache);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    unsigned int ticket = atomicInc(&blocks_done, gridDim.x);
    is_last_block = ticket == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last_block) {
    v = 0.0f;
    for (int b = threadIdx.x; b < gridDim.x; b += BLOCK) v += partial[b];
    sum = block_sum<BLOCK>(v, cache);
    if (threadIdx.x == 0) {
      *total = sum;
      blocks_done = 0;
    }
  }
}

extern "C" void run() {
  const int n = 2000, blocks = 6;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 4;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_partial;
  cudaMalloc(&d_partial, blocks * sizeof(float));
  static float total[1];
  float* d_total;
  cudaMalloc(&d_total, sizeof(float));
  sum_single_pass<64><<<blocks, 64>>>(d_x, d_partial, d_total, n);
  sum_single_pass<64><<<blocks, 64>>>(d_x, d_partial, d_total, n);
  cudaMemcpy(total, d_total, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_partial);
  cudaFree(d_total);
}

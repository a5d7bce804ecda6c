// The lock is given back on every way out.
#include <cuda_runtime.h>

__device__ int mutex = 0;

__device__ void lock() {
  while (atomicCAS(&mutex, 0, 1) != 0) {
    __nanosleep(100);
  }
  __threadfence();
}

__device__ void unlock() {
  __threadfence();
  atomicExch(&mutex, 0);
}

__global__ void longest_run(const int* x, int* best, int* where, int per_block) {
  if (threadIdx.x != 0) return;
  int run = 0, longest = 0;
  for (int i = 0; i < per_block; ++i) {
    run = x[blockIdx.x * per_block + i] > 0 ? run + 1 : 0;
    longest = max(longest, run);
  }
  lock();
  if (longest > *best) {
    *best = longest;
    *where = blockIdx.x;
  }
  unlock();
}

extern "C" void run() {
  const int blocks = 4, per_block = 25;
  static int x[blocks * per_block];
  for (int i = 0; i < blocks * per_block; ++i) x[i] = (i * i) % 11 - 3;
  int* d_x;
  cudaMalloc(&d_x, blocks * per_block * sizeof(int));
  cudaMemcpy(d_x, x, blocks * per_block * sizeof(int), cudaMemcpyHostToDevice);
  static int best[1];
  int* d_best;
  cudaMalloc(&d_best, sizeof(int));
  cudaMemset(d_best, 0, sizeof(int));
  static int where[1];
  int* d_where;
  cudaMalloc(&d_where, sizeof(int));
  cudaMemset(d_where, 0, sizeof(int));
  longest_run<<<blocks, 32>>>(d_x, d_best, d_where, per_block);
  cudaMemcpy(best, d_best, sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(where, d_where, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_best);
  cudaFree(d_where);
}

// kind: deadlock
// Two threads take the same two locks in opposite order.
#include <cuda_runtime.h>

__device__ void take(int* lock) {
  while (atomicCAS(lock, 0, 1) != 0) {  // BUG
  }
  __threadfence();
}

__device__ void give(int* lock) {
  __threadfence();
  atomicExch(lock, 0);
}

// Moves amounts between accounts; one warp leader a transfer.
__global__ void transfer(int* balance, int* locks, const int* from, const int* to, int transfers) {
  int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 != 0 || warp >= transfers) return;
  int first = from[warp], second = to[warp];
  take(&locks[first]);
  __nanosleep(20);
  take(&locks[second]);
  balance[from[warp]] -= 5;
  balance[to[warp]] += 5;
  give(&locks[second]);
  give(&locks[first]);
}

extern "C" void run() {
  static int balance[2];
  for (int i = 0; i < 2; ++i) balance[i] = 100;
  int* d_balance;
  cudaMalloc(&d_balance, 2 * sizeof(int));
  cudaMemcpy(d_balance, balance, 2 * sizeof(int), cudaMemcpyHostToDevice);
  static int locks[2];
  int* d_locks;
  cudaMalloc(&d_locks, 2 * sizeof(int));
  cudaMemset(d_locks, 0, 2 * sizeof(int));
  static int from[2];
  for (int i = 0; i < 2; ++i) from[i] = i;
  int* d_from;
  cudaMalloc(&d_from, 2 * sizeof(int));
  cudaMemcpy(d_from, from, 2 * sizeof(int), cudaMemcpyHostToDevice);
  static int to[2];
  for (int i = 0; i < 2; ++i) to[i] = 1 - i;
  int* d_to;
  cudaMalloc(&d_to, 2 * sizeof(int));
  cudaMemcpy(d_to, to, 2 * sizeof(int), cudaMemcpyHostToDevice);
  transfer<<<1, 64>>>(d_balance, d_locks, d_from, d_to, 2);
  cudaMemcpy(balance, d_balance, sizeof(balance), cudaMemcpyDeviceToHost);
  cudaMemcpy(locks, d_locks, 2 * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_balance);
  cudaFree(d_locks);
  cudaFree(d_from);
  cudaFree(d_to);
}

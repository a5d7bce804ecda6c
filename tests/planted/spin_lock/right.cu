// Fences stand behind taking the lock and before giving it back with an atomic.
#include <cuda_runtime.h>

// Welford's running mean and variance over all blocks: too big for one atomic, so a lock guards them.
struct Moments {
  float count, mean, m2;
};

__global__ void merge_moments(const float* x, Moments* all, int* lock, int per_block) {
  if (threadIdx.x != 0) return;
  Moments mine = {0.f, 0.f, 0.f};
  for (int i = 0; i < per_block; ++i) {
    float v = x[blockIdx.x * per_block + i];
    mine.count += 1.f;
    float delta = v - mine.mean;
    mine.mean += delta / mine.count;
    mine.m2 += delta * (v - mine.mean);
  }
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  float count = all->count + mine.count;
  float delta = mine.mean - all->mean;
  all->mean += delta * mine.count / count;
  all->m2 += mine.m2 + delta * delta * all->count * mine.count / count;
  all->count = count;
  __threadfence();
  atomicExch(lock, 0);
}

extern "C" void run() {
  const int blocks = 5, per_block = 20;
  static float x[blocks * per_block];
  for (int i = 0; i < blocks * per_block; ++i) x[i] = i % 9;
  float* d_x;
  cudaMalloc(&d_x, blocks * per_block * sizeof(float));
  cudaMemcpy(d_x, x, blocks * per_block * sizeof(float), cudaMemcpyHostToDevice);
  static Moments all[1];
  Moments* d_all;
  cudaMalloc(&d_all, sizeof(Moments));
  cudaMemset(d_all, 0, sizeof(Moments));
  static int lock[1];
  int* d_lock;
  cudaMalloc(&d_lock, sizeof(int));
  cudaMemset(d_lock, 0, sizeof(int));
  merge_moments<<<blocks, 32>>>(d_x, d_all, d_lock, per_block);
  cudaMemcpy(all, d_all, sizeof(Moments), cudaMemcpyDeviceToHost);
  cudaMemcpy(lock, d_lock, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_all);
  cudaFree(d_lock);
}

// kind: deadlock
// Every lane takes the lock, but only the last lane of the warp gives it back.
#include <cuda_runtime.h>

__device__ int list_lock = 0;

__global__ void link_nodes(const int* key, int* head, int* next, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  bool done = false;
  while (!done) {
    if (atomicCAS(&list_lock, 0, 1) == 0) {  // BUG
      __threadfence();
      next[i] = head[key[i]];
      head[key[i]] = i;
      __threadfence();
      if (i == n - 1) atomicExch(&list_lock, 0);
      done = true;
    }
  }
}

extern "C" void run() {
  const int n = 40, keys = 4;
  static int key[n];
  for (int i = 0; i < n; ++i) key[i] = i % keys;
  int* d_key;
  cudaMalloc(&d_key, n * sizeof(int));
  cudaMemcpy(d_key, key, n * sizeof(int), cudaMemcpyHostToDevice);
  static int head[keys];
  for (int i = 0; i < keys; ++i) head[i] = -1;
  int* d_head;
  cudaMalloc(&d_head, keys * sizeof(int));
  cudaMemcpy(d_head, head, keys * sizeof(int), cudaMemcpyHostToDevice);
  static int next[n];
  int* d_next;
  cudaMalloc(&d_next, n * sizeof(int));
  link_nodes<<<1, 64>>>(d_key, d_head, d_next, n);
  cudaMemcpy(next, d_next, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_key);
  cudaFree(d_head);
  cudaFree(d_next);
}

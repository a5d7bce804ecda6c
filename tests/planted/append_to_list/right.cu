// The place is what atomicAdd returns.
#include <cuda_runtime.h>

struct List {
  int* items;
  int* count;
  int capacity;
};

__global__ void collect_multiples(List list, int n, int of) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n || i % of != 0) return;
  int place = atomicAdd(list.count, 1);
  if (place < list.capacity) list.items[place] = i;
}

extern "C" void run() {
  const int n = 200, capacity = 100;
  static int items[capacity];
  int* d_items;
  cudaMalloc(&d_items, capacity * sizeof(int));
  cudaMemset(d_items, 0, capacity * sizeof(int));
  static int count[1];
  int* d_count;
  cudaMalloc(&d_count, sizeof(int));
  cudaMemset(d_count, 0, sizeof(int));
  List list = {d_items, d_count, capacity};
  collect_multiples<<<4, 64>>>(list, n, 3);
  cudaMemcpy(items, d_items, capacity * sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(count, d_count, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_items);
  cudaFree(d_count);
}

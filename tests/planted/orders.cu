// Small kernels whose synchronising operations have a known number of orders.
#include <cuda_runtime.h>

#include <cstdint>

// Each thread's place depends on the order: 4! of them.
__global__ void tickets(int* next, int* place) { place[threadIdx.x] = atomicAdd(next, 1); }

// Nobody uses the result, so sums commute, and so do maxima.
__global__ void sums(int* sum, float* of_floats) {
  atomicAdd(sum, 1);
  for (int i = 0; i < 3; ++i) atomicAdd(of_floats, 0.5f);
}

// A maximum and a sum do not commute: one of two values is left.
__global__ void mixed(int* value) {
  if (threadIdx.x == 0) atomicAdd(value, 3);
  if (threadIdx.x == 1) atomicMax(value, 2);
}

// Two flags: of the four combinations of who comes first, one is impossible.
__global__ void store_buffer(volatile int* x, volatile int* y, int* seen) {
  if (threadIdx.x == 0) {
    *x = 1;
    seen[0] = *y;
  }
  if (threadIdx.x == 1) {
    *y = 1;
    seen[1] = *x;
  }
}

// A wait in a loop ends in one way, and what it read before that is one more order.
__global__ void flag(volatile int* set, volatile int* value, int* got) {
  if (blockIdx.x == 0) {
    *value = 7;
    __threadfence();
    *set = 1;
  } else {
    while (*set == 0) {
    }
    __threadfence();
    *got = *value;
  }
}

// Each row is behind the one before by a barrier, so nothing is left to choose.
__global__ void ring(const int* x, int* y, int rows) {
  __shared__ int slot[2][32];
  for (int i = 0; i < rows + 1; ++i) {
    if (threadIdx.x < 32 && i < rows) slot[i % 2][threadIdx.x] = x[32 * i + threadIdx.x];
    __syncthreads();
    if (threadIdx.x >= 32 && i < rows) y[32 * i + threadIdx.x - 32] = slot[i % 2][threadIdx.x - 32];
  }
}

// Changes what it has read: each order has to begin with the same memory.
__global__ void in_place(int* counts, int* next) {
  counts[threadIdx.x] += 1;
  counts[4 + atomicAdd(next, 1)] += 10;
}

// 8! orders are too many.
__global__ void many_tickets(int* next, int* place) { place[threadIdx.x] = atomicAdd(next, 1); }

// Memory of the heap cannot be taken back, so no orders run.
__global__ void allocating(int* next, int** list) { list[atomicAdd(next, 1)] = (int*)malloc(64); }

// Blocks that do not meet are explored one after the other. In each of the four, two warps take tickets.
__global__ void large(int* x) {
  __shared__ int next, place[2];
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  if (threadIdx.x < 64 && threadIdx.x % 32 == 0) place[threadIdx.x / 32] = atomicAdd(&next, 1);
  __syncthreads();
  x[blockIdx.x * blockDim.x + threadIdx.x] = place[threadIdx.x / 32 % 2] < 2;
}

// And these meet.
__global__ void large_tickets(int* next, int* x) {
  if (threadIdx.x == 0) x[atomicAdd(next, 1)] = 1;
}

template <typename T>
T* made(int count) {
  T* made;
  cudaMalloc(&made, count * sizeof(T));
  cudaMemset(made, 0, count * sizeof(T));
  return made;
}

extern "C" void run() {
  int *place = made<int>(8), *value = made<int>(1), *rows = made<int>(128), *copies = made<int>(128);
  tickets<<<1, 4>>>(made<int>(1), place);
  sums<<<2, 64>>>(made<int>(1), made<float>(1));
  mixed<<<1, 32>>>(value);
  store_buffer<<<1, 32>>>(made<int>(1), made<int>(1), place);
  flag<<<2, 1>>>(made<int>(1), made<int>(1), place);
  ring<<<1, 64>>>(rows, copies, 4);
  int* counts = made<int>(8);
  in_place<<<1, 4>>>(counts, made<int>(1));
  many_tickets<<<1, 8>>>(made<int>(1), place);
  allocating<<<1, 3>>>(made<int>(1), made<int*>(3));
  large<<<4, 1024>>>(made<int>(4096));
  large_tickets<<<4, 1024>>>(made<int>(1), made<int>(4));
  int host[8];
  cudaMemcpy(host, counts, sizeof host, cudaMemcpyDeviceToHost);
}

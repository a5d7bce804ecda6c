// Kernels that race in few orders of their synchronising operations, which a run in any single order of threads misses.
#include <cuda_runtime.h>

// Two threads write the note only if one has seen `second` and not yet `first`, and the other nothing of `second`.
__global__ void two_notes(volatile int* first, volatile int* second, int* note) {
  if (threadIdx.x == 0) *second = 1;
  if (threadIdx.x == 1) {
    const int late = *first, early = *second;
    if (late == 0 && early == 1) *note = 1;
  }
  if (threadIdx.x == 2) {
    const int seen = *second;
    atomicAdd(const_cast<int*>(first), 3);
    if (seen == 0) *note = 2;
  }
}

// Who does not get the lock says so, and goes on without it. Both write if the holder hears of it in time.
__global__ void tried_lock(int* lock, volatile int* failed, int* sum) {
  const bool has_it = atomicCAS(lock, 0, 1) == 0;
  if (blockIdx.x == 1 && !has_it) {
    *failed = 1;
    *sum = 2;
  }
  if (blockIdx.x == 0 && has_it) {
    if (*failed == 1) *sum = 1;
    atomicExch(lock, 0);
  }
}

// A store of eight bytes and a look at the last four of them.
__global__ void halves(volatile long long* both, int* sum) {
  if (blockIdx.x == 0) {
    *both = 1ll << 32;
    *sum = 1;
  } else if (reinterpret_cast<volatile int*>(both)[1] == 0) {
    *sum = 2;
  }
}

template <typename T>
T* zeros(int count) {
  T* made;
  cudaMalloc(&made, count * sizeof(T));
  cudaMemset(made, 0, count * sizeof(T));
  return made;
}

extern "C" void run() {
  int sum;
  int* const d_sum = zeros<int>(1);
  two_notes<<<1, 3>>>(zeros<int>(1), zeros<int>(1), zeros<int>(1));
  tried_lock<<<2, 1>>>(zeros<int>(1), zeros<int>(1), zeros<int>(1));
  halves<<<2, 1>>>(zeros<long long>(1), d_sum);
  cudaMemcpy(&sum, d_sum, sizeof sum, cudaMemcpyDeviceToHost);
}

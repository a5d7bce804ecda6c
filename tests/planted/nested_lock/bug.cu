// kind: deadlock
// record takes the lock that its caller holds already.
#include <cuda_runtime.h>

struct Log {
  int lock, entries, last;
  float best;
};

__device__ void take(int* lock) {
  while (atomicCAS(lock, 0, 1) != 0) {  // BUG
  }
  __threadfence();
}

__device__ void give(int* lock) {
  __threadfence();
  atomicExch(lock, 0);
}

__device__ void record(Log* log, int block) {
  take(&log->lock);
  log->entries += 1;
  log->last = block;
  give(&log->lock);
}

__global__ void improve(const float* x, Log* log, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0.0f;
  for (int offset = 16; offset > 0; offset >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, offset));
  if (threadIdx.x == 0) {
    take(&log->lock);
    if (v > log->best) {
      log->best = v;
      record(log, blockIdx.x);
    }
    give(&log->lock);
  }
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 31) % 47;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static Log log[1];
  Log* d_log;
  cudaMalloc(&d_log, sizeof(Log));
  cudaMemset(d_log, 0, sizeof(Log));
  improve<<<3, 32>>>(d_x, d_log, n);
  cudaMemcpy(log, d_log, sizeof(Log), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_log);
}

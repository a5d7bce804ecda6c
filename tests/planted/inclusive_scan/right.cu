// A second barrier stands between the reads and the writes of a step.
#include <cuda_runtime.h>

__global__ void scan(const int* x, int* y, int n) {
  __shared__ int temp[128];
  int tid = threadIdx.x;
  temp[tid] = tid < n ? x[tid] : 0;
  __syncthreads();
  for (int offset = 1; offset < blockDim.x; offset *= 2) {
    int add = tid >= offset ? temp[tid - offset] : 0;
    __syncthreads();
    temp[tid] += add;
    __syncthreads();
  }
  if (tid < n) y[tid] = temp[tid];
}

extern "C" void run() {
  const int n = 100;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 4;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  scan<<<1, 128>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

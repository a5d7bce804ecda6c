// Each step reads one half of the array and writes the other, so one barrier a step is enough.
#include <cuda_runtime.h>

__global__ void scan(const int* x, int* y, int n) {
  __shared__ int temp[2][128];
  int tid = threadIdx.x;
  int from = 0;
  temp[from][tid] = tid < n ? x[tid] : 0;
  __syncthreads();
  for (int offset = 1; offset < blockDim.x; offset *= 2) {
    temp[1 - from][tid] = temp[from][tid] + (tid >= offset ? temp[from][tid - offset] : 0);
    from = 1 - from;
    __syncthreads();
  }
  if (tid < n) y[tid] = temp[from][tid];
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

// Every thread counts in bins of its own, which are added up after a barrier.
#include <cuda_runtime.h>

#define BINS 16

__global__ void histogram(const unsigned char* data, unsigned int* counts, int n) {
  __shared__ unsigned char own[64][BINS];
  for (int b = 0; b < BINS; ++b) own[threadIdx.x][b] = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    own[threadIdx.x][data[i] % BINS]++;
  }
  __syncthreads();
  if (threadIdx.x < BINS) {
    unsigned int count = 0;
    for (int t = 0; t < blockDim.x; ++t) count += own[t][threadIdx.x];
    atomicAdd(&counts[threadIdx.x], count);
  }
}

extern "C" void run() {
  const int n = 500;
  static unsigned char data[n];
  for (int i = 0; i < n; ++i) data[i] = (unsigned char)(i * 7);
  unsigned char* d_data;
  cudaMalloc(&d_data, n * sizeof(unsigned char));
  cudaMemcpy(d_data, data, n * sizeof(unsigned char), cudaMemcpyHostToDevice);
  static unsigned int counts[BINS];
  unsigned int* d_counts;
  cudaMalloc(&d_counts, BINS * sizeof(unsigned int));
  cudaMemset(d_counts, 0, BINS * sizeof(unsigned int));
  histogram<<<2, 64>>>(d_data, d_counts, n);
  cudaMemcpy(counts, d_counts, BINS * sizeof(unsigned int), cudaMemcpyDeviceToHost);
  cudaFree(d_data);
  cudaFree(d_counts);
}

// kind: race
// The shared bins are counted up with a plain ++, which loses counts of threads that meet in one bin.
#include <cuda_runtime.h>

#define BINS 16

__global__ void histogram(const unsigned char* data, unsigned int* counts, int n) {
  __shared__ unsigned int bins[BINS];
  if (threadIdx.x < BINS) bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    bins[data[i] % BINS]++;  // BUG
  }
  __syncthreads();
  if (threadIdx.x < BINS) atomicAdd(&counts[threadIdx.x], bins[threadIdx.x]);
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

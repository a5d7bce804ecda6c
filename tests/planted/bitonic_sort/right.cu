// Every pass of the inner loop ends with a barrier.
#include <cuda_runtime.h>

__global__ void bitonic_sort(int* values, int n) {
  extern __shared__ int s[];
  unsigned int tid = threadIdx.x;
  s[tid] = values[tid];
  __syncthreads();
  for (unsigned int k = 2; k <= n; k *= 2) {
    for (unsigned int j = k / 2; j > 0; j /= 2) {
      unsigned int other = tid ^ j;
      if (other > tid) {
        bool ascending = (tid & k) == 0;
        if ((s[tid] > s[other]) == ascending) {
          int swapped = s[tid];
          s[tid] = s[other];
          s[other] = swapped;
        }
      }
      __syncthreads();
    }
  }
  values[tid] = s[tid];
}

extern "C" void run() {
  const int n = 64;
  static int values[n];
  for (int i = 0; i < n; ++i) values[i] = (i * 41) % 67;
  int* d_values;
  cudaMalloc(&d_values, sizeof(values));
  cudaMemcpy(d_values, values, sizeof(values), cudaMemcpyHostToDevice);
  bitonic_sort<<<1, n, sizeof(values)>>>(d_values, n);
  cudaMemcpy(values, d_values, sizeof(values), cudaMemcpyDeviceToHost);
  cudaFree(d_values);
}

// kind: race
// The barrier stands outside the inner loop, so a pass compares cells that the pass before is still swapping.
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
        if ((s[tid] > s[other]) == ascending) {  // BUG
          int swapped = s[tid];  // BUG
          s[tid] = s[other];  // BUG
          s[other] = swapped;  // BUG
        }
      }
    }
    __syncthreads();
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

// The checksum is unsigned, whose overflow wraps around by definition.
#include <cuda_runtime.h>

__global__ void checksum(const short* x, unsigned int* out, int n) {
  unsigned int sum = 2166136261u;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    sum = (sum ^ (unsigned short)x[i]) * 16777619u;
  }
  out[threadIdx.x] = sum;
}

extern "C" void run() {
  const int n = 200;
  static short x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 2 ? -32000 : 32000;
  short* d_x;
  cudaMalloc(&d_x, n * sizeof(short));
  cudaMemcpy(d_x, x, n * sizeof(short), cudaMemcpyHostToDevice);
  static unsigned int out[32];
  unsigned int* d_out;
  cudaMalloc(&d_out, 32 * sizeof(unsigned int));
  checksum<<<1, 32>>>(d_x, d_out, n);
  cudaMemcpy(out, d_out, 32 * sizeof(unsigned int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_out);
}

// The sum of squares of 16-bit values is kept in 64 bits.
#include <cuda_runtime.h>

__global__ void energy(const short* x, double* out, int n) {
  long long sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    sum += x[i] * x[i];
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
  static double out[32];
  double* d_out;
  cudaMalloc(&d_out, 32 * sizeof(double));
  energy<<<1, 32>>>(d_x, d_out, n);
  cudaMemcpy(out, d_out, 32 * sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_out);
}

// The second operand is loaded half by half.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void hadd_shifted(const __half* x, __half* y, int pairs) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  __half2 a = ((const __half2*)x)[i];
  __half2 b = __halves2half2(x[2 * i + 1], x[2 * i + 2]);
  ((__half2*)y)[i] = __hadd2(a, b);
}

extern "C" void run() {
  const int pairs = 40;
  static __half x[2 * pairs + 2];
  for (int i = 0; i < 2 * pairs + 2; ++i) x[i] = __float2half((float)(i % 16));
  __half* d_x;
  cudaMalloc(&d_x, sizeof(x));
  cudaMemcpy(d_x, x, sizeof(x), cudaMemcpyHostToDevice);
  static __half y[2 * pairs];
  __half* d_y;
  cudaMalloc(&d_y, 2 * pairs * sizeof(__half));
  hadd_shifted<<<1, 64>>>(d_x, d_y, pairs);
  cudaFree(d_x);
  cudaMemcpy(y, d_y, 2 * pairs * sizeof(__half), cudaMemcpyDeviceToHost);
  cudaFree(d_y);
}

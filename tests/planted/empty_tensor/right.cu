// Nothing is launched for an empty tensor.
#include <cuda_runtime.h>

__global__ void negate(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = -x[i];
}

static void launch_negate(float* x, int n) {
  if (n == 0) return;
  const int threads = 128;
  const int blocks = (n + threads - 1) / threads;
  negate<<<blocks, threads>>>(x, n);
}

extern "C" void run() {
  const int n = 130;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  launch_negate(d_x, n);
  launch_negate(nullptr, 0);
  cudaMemcpy(x, d_x, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
}

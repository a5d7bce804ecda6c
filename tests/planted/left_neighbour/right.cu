// The first element is its own left neighbour.
#include <cuda_runtime.h>

__global__ void difference(const double* x, double* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = x[i] - x[i > 0 ? i - 1 : 0];
  }
}

extern "C" void run() {
  const int n = 150;
  static double x[n];
  for (int i = 0; i < n; ++i) x[i] = i * i;
  double* d_x;
  cudaMalloc(&d_x, n * sizeof(double));
  cudaMemcpy(d_x, x, n * sizeof(double), cudaMemcpyHostToDevice);
  static double y[n];
  double* d_y;
  cudaMalloc(&d_y, n * sizeof(double));
  difference<<<2, 96>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

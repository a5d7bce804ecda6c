// kind: misaligned
// A header of 4 bytes stands before the doubles in a shared byte buffer.
#include <cuda_runtime.h>

__global__ void mean_in_double(const float* x, double* mean, int n) {
  __shared__ __align__(16) unsigned char buffer[8 + 64 * sizeof(double)];
  int* used = reinterpret_cast<int*>(buffer);
  double* sums = reinterpret_cast<double*>(buffer + 4);
  if (threadIdx.x == 0) *used = min(n, 64);
  double sum = 0.0;
  for (int i = threadIdx.x; i < n; i += 64) sum += x[i];
  sums[threadIdx.x] = sum;  // BUG
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0;
    for (int t = 0; t < *used; ++t) total += sums[t];  // BUG
    *mean = total / n;
  }
}

extern "C" void run() {
  const int n = 100;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static double mean[1];
  double* d_mean;
  cudaMalloc(&d_mean, sizeof(double));
  mean_in_double<<<1, 64>>>(d_x, d_mean, n);
  cudaMemcpy(mean, d_mean, sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_mean);
}

// kind: deadlock
// The terms cancel each other, so the sum never passes the bound that ends the loop.
#include <cuda_runtime.h>

__global__ void series(const float* coefficients, float* sum, float bound, int terms) {
  if (threadIdx.x != 0) return;
  float total = 0.0f;
  for (int k = 0; total < bound; k = (k + 1) & 3) {
    total += coefficients[k];  // BUG
  }
  *sum = total;
}

extern "C" void run() {
  static float coefficients[4];
  for (int i = 0; i < 4; ++i) coefficients[i] = i % 2 ? -1.0f : 1.0f;
  float* d_coefficients;
  cudaMalloc(&d_coefficients, 4 * sizeof(float));
  cudaMemcpy(d_coefficients, coefficients, 4 * sizeof(float), cudaMemcpyHostToDevice);
  static float sum[1];
  float* d_sum;
  cudaMalloc(&d_sum, sizeof(float));
  series<<<1, 32>>>(d_coefficients, d_sum, 10.0f, 100000);
  cudaMemcpy(sum, d_sum, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_coefficients);
  cudaFree(d_sum);
}

// Every thread allocates its own scratch memory, with malloc and with new.
#include <cuda_runtime.h>

#include <cstdlib>

struct Pair {
  float first, second;
};

__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float* const scratch = (float*)malloc(4 * sizeof(float));
  float* const more = static_cast<float*>(std::malloc(sizeof(float)));
  Pair* const pair = new Pair{x[i], 2.0f};
  float* const sums = new float[2];
  for (int k = 0; k < 4; ++k) scratch[k] = k * x[i];
  more[0] = 1.0f;
  sums[0] = scratch[0] + scratch[3];
  sums[1] = pair->first * pair->second;
  y[i] = sums[0] + sums[1] + more[0];
  delete[] sums;
  delete pair;
  free(more);
  free(scratch);
}

extern "C" void run() {
  const int n = 90;
  float* x = new float[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  scale<<<1, 96>>>(d_x, d_y, n);
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  delete[] x;
}

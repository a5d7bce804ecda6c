// kind: out-of-bounds
// The scratch memory of all threads comes from the host's new.
#include <cuda_runtime.h>

__global__ void scale(const float* x, float* scratch, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  scratch[i] = 3 * x[i];  // BUG
  y[i] = scratch[i] + x[i];  // BUG
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
  float* const scratch = new float[n];
  scale<<<1, 96>>>(d_x, scratch, d_y, n);
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  delete[] scratch;
  delete[] x;
}

// kind: uninitialised
// The shared total is added to without having been set to zero.
#include <cuda_runtime.h>

__global__ void row_norm(const float* x, float* norms, int cols) {
  __shared__ float total;
  float v = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    float e = x[blockIdx.x * cols + c];
    v += e * e;
  }
  atomicAdd(&total, v);  // BUG
  __syncthreads();
  if (threadIdx.x == 0) norms[blockIdx.x] = sqrtf(total);  // BUG
}

extern "C" void run() {
  const int rows = 2, cols = 70;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 5;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float norms[rows];
  float* d_norms;
  cudaMalloc(&d_norms, rows * sizeof(float));
  row_norm<<<rows, 64>>>(d_x, d_norms, cols);
  cudaMemcpy(norms, d_norms, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_norms);
}

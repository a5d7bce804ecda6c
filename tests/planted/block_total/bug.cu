// kind: race
// The block's threads read the total that they gather with atomics before the barrier behind them.
#include <cuda_runtime.h>

__global__ void softmax_denominators(const float* x, float* y, float* totals, int cols) {
  __shared__ float total;
  if (threadIdx.x == 0) total = 0.0f;
  __syncthreads();
  float mine = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) mine += expf(x[blockIdx.x * cols + c]);
  atomicAdd(&total, mine);  // BUG
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    y[blockIdx.x * cols + c] = expf(x[blockIdx.x * cols + c]) / total;  // BUG
  }
}

extern "C" void run() {
  const int rows = 3, cols = 90;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = (i % 17) * 0.125f;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float y[rows * cols];
  float* d_y;
  cudaMalloc(&d_y, rows * cols * sizeof(float));
  static float totals[rows];
  float* d_totals;
  cudaMalloc(&d_totals, rows * sizeof(float));
  cudaMemset(d_totals, 0, rows * sizeof(float));
  softmax_denominators<<<rows, 64>>>(d_x, d_y, d_totals, cols);
  cudaMemcpy(y, d_y, rows * cols * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(totals, d_totals, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  cudaFree(d_totals);
}

// kind: misaligned
// One atomic operation adds four floats to rows of six floats.
#include <cuda_runtime.h>

__global__ void accumulate(const int* rows, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(reinterpret_cast<float4*>(y + 6 * rows[i]), make_float4(1, 2, 3, 4));  // BUG
}

extern "C" void run() {
  const int n = 70, count = 16;
  static int rows[n];
  static float y[8 * count];
  for (int i = 0; i < n; ++i) rows[i] = i * 5 % count;
  int* d_rows;
  float* d_y;
  cudaMalloc(&d_rows, sizeof rows);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_rows, rows, sizeof rows, cudaMemcpyHostToDevice);
  cudaMemset(d_y, 0, sizeof y);
  accumulate<<<2, 64>>>(d_rows, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_rows);
  cudaFree(d_y);
}

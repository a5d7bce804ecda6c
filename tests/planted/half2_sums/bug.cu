// kind: misaligned
// Pairs of halves are added behind a header of three halves.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void scatter(const int* rows, __half* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  __half* const target = y + 3 + 2 * rows[i];
  atomicAdd(reinterpret_cast<__half2*>(target), __floats2half2_rn(1.0f, 2.0f));  // BUG
}

extern "C" void run() {
  const int n = 70, count = 16;
  static int rows[n];
  static __half y[2 * count + 4];
  for (int i = 0; i < n; ++i) rows[i] = i * 5 % count;
  int* d_rows;
  __half* d_y;
  cudaMalloc(&d_rows, sizeof rows);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_rows, rows, sizeof rows, cudaMemcpyHostToDevice);
  cudaMemset(d_y, 0, sizeof y);
  scatter<<<2, 64>>>(d_rows, d_y, n);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_rows);
  cudaFree(d_y);
}

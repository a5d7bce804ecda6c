// Rows of 12 halves are loaded 4 at a time, for which their 8-byte alignment is enough.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int VECTOR = 4;
using Vector = uint2;

__global__ void row_heads(const __half* x, float* sums, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  Vector raw = *reinterpret_cast<const Vector*>(x + row * cols);
  const __half* values = reinterpret_cast<const __half*>(&raw);
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < VECTOR; ++k) sum += __half2float(values[k]);
  sums[row] = sum;
}

extern "C" void run() {
  const int rows = 10, cols = 12;
  static __half x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = __float2half(0.5f * (i % 10));
  __half* d_x;
  cudaMalloc(&d_x, sizeof(x));
  cudaMemcpy(d_x, x, sizeof(x), cudaMemcpyHostToDevice);
  static float sums[rows];
  float* d_sums;
  cudaMalloc(&d_sums, rows * sizeof(float));
  row_heads<<<1, 32>>>(d_x, d_sums, rows, cols);
  cudaFree(d_x);
  cudaMemcpy(sums, d_sums, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_sums);
}

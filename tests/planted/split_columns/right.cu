// Each part of the columns has a cell of its own, and a second kernel in sequence adds the parts up.
#include <cuda_runtime.h>

__global__ void row_parts(const float* x, float* sums, int cols, int parts) {
  int row = blockIdx.y, part = blockIdx.x;
  float v = 0.0f;
  for (int c = part * blockDim.x + threadIdx.x; c < cols; c += parts * blockDim.x) v += x[row * cols + c];
  for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_xor_sync(~0u, v, offset);
  if (threadIdx.x == 0) sums[row * parts + part] = v;
}

__global__ void add_parts(const float* parts_of, float* sums, int rows, int parts) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float v = 0.0f;
  for (int p = 0; p < parts; ++p) v += parts_of[row * parts + p];
  sums[row] = v;
}

extern "C" void run() {
  const int rows = 6, cols = 200, parts = 3;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 4;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float sums[rows];
  float* d_sums;
  cudaMalloc(&d_sums, rows * sizeof(float));
  float* d_scratch;
  cudaMalloc(&d_scratch, rows * parts * sizeof(float));
  row_parts<<<dim3(parts, rows), 32>>>(d_x, d_scratch, cols, parts);
  add_parts<<<1, 32>>>(d_scratch, d_sums, rows, parts);
  cudaMemcpy(sums, d_sums, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
  cudaFree(d_scratch);
}

// kind: out-of-bounds
// The tile is filled through a flat pointer with the padded number of its cells for another, wider tile.
#include <cuda_runtime.h>

constexpr int ROWS = 8, COLS = 20;

__global__ void column_sums(const float* x, float* sums) {
  __shared__ float tile[ROWS][COLS];
  float* cells = &tile[0][0];
  for (int k = threadIdx.x; k < ROWS * (COLS + 1); k += blockDim.x) {
    cells[k] = k < ROWS * COLS ? x[blockIdx.x * ROWS * COLS + k] : 0.0f;  // BUG
  }
  __syncthreads();
  if (threadIdx.x < COLS) {
    float sum = 0.0f;
    for (int r = 0; r < ROWS; ++r) sum += tile[r][threadIdx.x];
    sums[blockIdx.x * COLS + threadIdx.x] = sum;
  }
}

extern "C" void run() {
  const int tiles = 2;
  static float x[tiles * ROWS * COLS];
  for (int i = 0; i < tiles * ROWS * COLS; ++i) x[i] = i % 13;
  float* d_x;
  cudaMalloc(&d_x, tiles * ROWS * COLS * sizeof(float));
  cudaMemcpy(d_x, x, tiles * ROWS * COLS * sizeof(float), cudaMemcpyHostToDevice);
  static float sums[tiles * COLS];
  float* d_sums;
  cudaMalloc(&d_sums, tiles * COLS * sizeof(float));
  column_sums<<<tiles, 32>>>(d_x, d_sums);
  cudaMemcpy(sums, d_sums, tiles * COLS * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sums);
}

// kind: race
// also: uninitialised
// The tile is read column by column without a barrier after it was filled row by row.
#include <cuda_runtime.h>

constexpr int TILE_DIM = 32, BLOCK_ROWS = 8;

__global__ void transpose(float* odata, const float* idata, int width, int height) {
  __shared__ float tile[TILE_DIM][TILE_DIM + 1];
  int x = blockIdx.x * TILE_DIM + threadIdx.x;
  int y = blockIdx.y * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) {
    if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];  // BUG
  }
  x = blockIdx.y * TILE_DIM + threadIdx.x;
  y = blockIdx.x * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS) {
    if (x < height && y + j < width) odata[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];  // BUG
  }
}

extern "C" void run() {
  const int width = 50, height = 40;
  static float idata[width * height];
  for (int i = 0; i < width * height; ++i) idata[i] = i;
  float* d_idata;
  cudaMalloc(&d_idata, width * height * sizeof(float));
  cudaMemcpy(d_idata, idata, width * height * sizeof(float), cudaMemcpyHostToDevice);
  static float odata[width * height];
  float* d_odata;
  cudaMalloc(&d_odata, width * height * sizeof(float));
  transpose<<<dim3(2, 2), dim3(TILE_DIM, BLOCK_ROWS)>>>(d_odata, d_idata, width, height);
  cudaMemcpy(odata, d_odata, width * height * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_idata);
  cudaFree(d_odata);
}

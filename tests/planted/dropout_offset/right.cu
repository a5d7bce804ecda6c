// The element's index is computed in 64 bits.
#include <cuda_runtime.h>

#include <stdint.h>

__device__ unsigned int hash(unsigned int v) {
  v ^= v >> 16;
  v *= 0x7feb352du;
  v ^= v >> 15;
  v *= 0x846ca68bu;
  return v ^ v >> 16;
}

// How many of the first elements of each row a dropout of the whole (rows, cols) tensor would keep.
__global__ void kept_heads(int* kept, int rows, int cols, int heads, float keep) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  int count = 0;
  for (int col = 0; col < heads; ++col) {
    int64_t index = (int64_t)row * cols + col;
    count += hash((unsigned int)index ^ (unsigned int)(index >> 32)) < keep * 4294967296.0f;
  }
  kept[row] = count;
}

extern "C" void run() {
  const int rows = 100, cols = 50000000;
  static int kept[rows];
  int* d_kept;
  cudaMalloc(&d_kept, rows * sizeof(int));
  kept_heads<<<1, 128>>>(d_kept, rows, cols, 4, 0.9f);
  cudaMemcpy(kept, d_kept, rows * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_kept);
}

// kind: race
// The rows are fetched ahead into the buffer that the other threads are still reading, not into the other one.
#include <cuda_runtime.h>

// Column-wise running maximum over windows of three neighbours, rows streamed through shared memory.
__global__ void window_max(const float* x, float* y, int rows, int cols) {
  __shared__ float buffer[2][66];
  const int c = threadIdx.x;
  auto fetch = [&](int b, int r) {
    buffer[b][c + 1] = x[r * cols + c];  // BUG
    if (c == 0) buffer[b][0] = buffer[b][65] = -1e30f;  // BUG
  };
  fetch(0, 0);
  __syncthreads();
  float best = -1e30f;
  for (int r = 0; r < rows; ++r) {
    const int current = 0;
    if (r + 1 < rows) fetch(current, r + 1);
    best = fmaxf(best, fmaxf(buffer[current][c], fmaxf(buffer[current][c + 1], buffer[current][c + 2])));  // BUG
    y[r * cols + c] = best;
    __syncthreads();
  }
}

extern "C" void run() {
  const int rows = 5, cols = 64;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = (i * 37) % 101;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float y[rows * cols];
  float* d_y;
  cudaMalloc(&d_y, rows * cols * sizeof(float));
  window_max<<<1, cols>>>(d_x, d_y, rows, cols);
  cudaMemcpy(y, d_y, rows * cols * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

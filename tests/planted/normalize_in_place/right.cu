// The result goes into another array.
#include <cuda_runtime.h>

// Grid: (parts of a row, rows); every block needs the whole row's mean.
__global__ void center(const float* x, float* y, int cols) {
  __shared__ float mean;
  const float* row = x + blockIdx.y * cols;
  if (threadIdx.x == 0) {
    float sum = 0.0f;
    for (int c = 0; c < cols; ++c) sum += row[c];
    mean = sum / cols;
  }
  __syncthreads();
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c < cols) y[blockIdx.y * cols + c] = row[c] - mean;
}

extern "C" void run() {
  const int rows = 2, cols = 100;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 12;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float y[rows * cols];
  float* d_y;
  cudaMalloc(&d_y, rows * cols * sizeof(float));
  center<<<dim3((cols + 31) / 32, rows), 32>>>(d_x, d_y, cols);
  cudaMemcpy(y, d_y, rows * cols * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

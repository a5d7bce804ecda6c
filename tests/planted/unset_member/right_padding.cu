// All members are set; what lies between them is padding, copied along with the struct.
#include <cuda_runtime.h>

struct Best {
  char found;
  double value;
  short index;
};

__global__ void argmax(const float* x, int* index, int cols) {
  __shared__ Best best[32];
  const float* row = x + blockIdx.x * cols;
  int t = threadIdx.x;
  best[t].found = 1;
  best[t].value = -INFINITY;
  best[t].index = 0;
  for (int c = t; c < cols; c += 32) {
    if (row[c] > best[t].value) {
      best[t].value = row[c];
      best[t].index = c;
    }
  }
  __syncthreads();
  for (int s = 16; s > 0; s /= 2) {
    if (t < s && best[t + s].value > best[t].value) best[t] = best[t + s];
    __syncthreads();
  }
  if (t == 0) index[blockIdx.x] = best[0].index;
}

extern "C" void run() {
  const int rows = 2, cols = 80;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i < cols ? -1.0f - i % 7 : i % 13;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static int index[rows];
  int* d_index;
  cudaMalloc(&d_index, rows * sizeof(int));
  argmax<<<rows, 32>>>(d_x, d_index, cols);
  cudaMemcpy(index, d_index, rows * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_index);
}

// kind: race
// Both threads of a pair swap the same two cells.
#include <cuda_runtime.h>

__global__ void transpose_square(float* a, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < n && col < n) {
    float upper = a[row * n + col];  // BUG
    a[row * n + col] = a[col * n + row];  // BUG
    a[col * n + row] = upper;  // BUG
  }
}

extern "C" void run() {
  const int n = 20;
  static float a[n * n];
  for (int i = 0; i < n * n; ++i) a[i] = i;
  float* d_a;
  cudaMalloc(&d_a, n * n * sizeof(float));
  cudaMemcpy(d_a, a, n * n * sizeof(float), cudaMemcpyHostToDevice);
  transpose_square<<<dim3(3, 3), dim3(8, 8)>>>(d_a, n);
  cudaMemcpy(a, d_a, n * n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_a);
}

// The thread's local window is shifted within its five elements.
#include <cuda_runtime.h>

__global__ void median_of_five(const int* x, int* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i + 4 >= n) return;
  int window[5];
  for (int k = 0; k < 5; ++k) window[k] = x[i + k];
  for (int a = 1; a < width; ++a) {
    int v = window[a];
    int b = a - 1;
    while (b >= 0 && window[b] > v) {
      window[b + 1] = window[b];
      --b;
    }
    window[b + 1] = v;
  }
  y[i] = window[2];
}

extern "C" void run() {
  const int n = 100;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 17) % 31;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int y[n];
  int* d_y;
  cudaMalloc(&d_y, n * sizeof(int));
  cudaMemset(d_y, 0, n * sizeof(int));
  median_of_five<<<2, 64>>>(d_x, d_y, n, 5);
  cudaMemcpy(y, d_y, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

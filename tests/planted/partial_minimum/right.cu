// Threads beyond n fill their cell with infinity, which no minimum takes.
#include <cuda_runtime.h>

__global__ void block_min(const float* x, float* out, int n) {
  __shared__ float cells[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  cells[threadIdx.x] = i < n ? x[i] : INFINITY;
  __syncthreads();
  for (int s = 32; s > 0; s >>= 1) {
    if (threadIdx.x < s) cells[threadIdx.x] = fminf(cells[threadIdx.x], cells[threadIdx.x + s]);
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = cells[0];
}

extern "C" void run() {
  const int n = 100, blocks = 2;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = 50.0f + i % 30;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float out[blocks];
  float* d_out;
  cudaMalloc(&d_out, blocks * sizeof(float));
  block_min<<<blocks, 64>>>(d_x, d_out, n);
  cudaMemcpy(out, d_out, blocks * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_out);
}

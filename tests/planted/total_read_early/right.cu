// The total is read by a second launch, when all blocks have added their part.
#include <cuda_runtime.h>

__global__ void l2_normalize(const float* x, float* y, float* total, int n) {
  __shared__ float cells[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0.0f;
  cells[threadIdx.x] = v * v;
  __syncthreads();
  for (int s = 32; s > 0; s >>= 1) {
    if (threadIdx.x < s) cells[threadIdx.x] += cells[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, cells[0]);
}

__global__ void divide(const float* x, float* y, const float* total, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * rsqrtf(*total);
}

extern "C" void run() {
  const int n = 180, blocks = (n + 63) / 64;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 9 - 4.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  static float total[1];
  float* d_total;
  cudaMalloc(&d_total, sizeof(float));
  cudaMemset(d_total, 0, sizeof(float));
  l2_normalize<<<blocks, 64>>>(d_x, d_y, d_total, n);
  divide<<<blocks, 64>>>(d_x, d_y, d_total, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(total, d_total, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  cudaFree(d_total);
}

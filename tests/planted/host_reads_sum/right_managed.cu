// Managed memory is the host's, too.
#include <cuda_runtime.h>

__global__ void add_all(const float* x, float* sum, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, x[i]);
}

__global__ void divide(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] /= by;
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = 1 + i % 8;
  float *d_x, *d_sum;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMallocManaged(&d_sum, sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemset(d_sum, 0, sizeof(float));
  add_all<<<1, 96>>>(d_x, d_sum, n);
  cudaDeviceSynchronize();
  divide<<<1, 96>>>(d_x, *d_sum, n);
  cudaMemcpy(x, d_x, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_sum);
}

// Threads of a block store the same true into a shared flag, and read it behind a barrier.
#include <cuda_runtime.h>

__global__ void unscale(float* grad, float inverse_scale, float* found_inf, int n) {
  __shared__ bool seen;
  if (threadIdx.x == 0) seen = false;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float g = grad[i];
    if (!isfinite(g)) seen = true;
    grad[i] = g * inverse_scale;
  }
  __syncthreads();
  if (threadIdx.x == 0 && seen) atomicExch(found_inf, 1.0f);
}

extern "C" void run() {
  const int n = 300;
  static float grad[n];
  for (int i = 0; i < n; ++i) grad[i] = i % 40 == 7 ? 1.0f / 0.0f : i;
  float* d_grad;
  cudaMalloc(&d_grad, n * sizeof(float));
  cudaMemcpy(d_grad, grad, n * sizeof(float), cudaMemcpyHostToDevice);
  static float found_inf[1];
  float* d_found_inf;
  cudaMalloc(&d_found_inf, sizeof(float));
  cudaMemset(d_found_inf, 0, sizeof(float));
  unscale<<<2, 64>>>(d_grad, 0.5f, d_found_inf, n);
  cudaMemcpy(grad, d_grad, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(found_inf, d_found_inf, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_grad);
  cudaFree(d_found_inf);
}

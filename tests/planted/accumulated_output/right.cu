// The output is set to zero with cudaMemset before the kernel adds to it.
#include <cuda_runtime.h>

__global__ void accumulate(const float* grad, float* sum, int batch, int features) {
  int f = blockIdx.x * blockDim.x + threadIdx.x;
  if (f >= features) return;
  for (int b = 0; b < batch; ++b) {
    sum[f] += grad[b * features + f];
  }
}

extern "C" void run() {
  const int batch = 4, features = 50;
  static float grad[batch * features];
  for (int i = 0; i < batch * features; ++i) grad[i] = i % 7;
  float* d_grad;
  cudaMalloc(&d_grad, batch * features * sizeof(float));
  cudaMemcpy(d_grad, grad, batch * features * sizeof(float), cudaMemcpyHostToDevice);
  static float sum[features];
  float* d_sum;
  cudaMalloc(&d_sum, features * sizeof(float));
  cudaMemset(d_sum, 0, features * sizeof(float));
  accumulate<<<1, 64>>>(d_grad, d_sum, batch, features);
  cudaMemcpy(sum, d_sum, features * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_grad);
  cudaFree(d_sum);
}

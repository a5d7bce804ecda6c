// The bias is indexed by the element's channel.
#include <cuda_runtime.h>

__global__ void add_bias(const float* x, const float* bias, float* y, int channels, int plane, int total) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
    y[i] = x[i] + bias[i / plane % channels];
  }
}

extern "C" void run() {
  const int batch = 3, channels = 5, plane = 16, total = batch * channels * plane;
  static float x[total];
  for (int i = 0; i < total; ++i) x[i] = i % 10;
  float* d_x;
  cudaMalloc(&d_x, total * sizeof(float));
  cudaMemcpy(d_x, x, total * sizeof(float), cudaMemcpyHostToDevice);
  static float bias[channels];
  for (int i = 0; i < channels; ++i) bias[i] = i;
  float* d_bias;
  cudaMalloc(&d_bias, channels * sizeof(float));
  cudaMemcpy(d_bias, bias, channels * sizeof(float), cudaMemcpyHostToDevice);
  static float y[total];
  float* d_y;
  cudaMalloc(&d_y, total * sizeof(float));
  add_bias<<<2, 64>>>(d_x, d_bias, d_y, channels, plane, total);
  cudaMemcpy(y, d_y, total * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_bias);
  cudaFree(d_y);
}

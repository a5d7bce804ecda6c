// One thread packs both halves of a byte.
#include <cuda_runtime.h>

__global__ void quantize_int4(const float* x, unsigned char* packed, int n) {
  __shared__ unsigned char codes[64];
  int t = threadIdx.x;
  if (t < n / 2) codes[t] = ((unsigned char)(x[2 * t] * 15.0f) & 15) | ((unsigned char)(x[2 * t + 1] * 15.0f) & 15) << 4;
  __syncthreads();
  if (t < n / 2) packed[t] = codes[t];
}

extern "C" void run() {
  const int n = 64;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i % 16) / 16.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static unsigned char packed[n / 2];
  unsigned char* d_packed;
  cudaMalloc(&d_packed, n / 2 * sizeof(unsigned char));
  quantize_int4<<<1, n>>>(d_x, d_packed, n);
  cudaMemcpy(packed, d_packed, n / 2 * sizeof(unsigned char), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_packed);
}

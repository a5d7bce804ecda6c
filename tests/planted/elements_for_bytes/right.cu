// cudaMalloc is given bytes.
#include <cuda_runtime.h>

__global__ void squares(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (float)i * i;
}

extern "C" void run() {
  const int n = 300;
  static float out[n];
  float* d_out;
  cudaMalloc((void**)&d_out, n * sizeof(float));
  squares<<<3, 128>>>(d_out, n);
  cudaMemcpy(out, d_out, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_out);
}

// kind: out-of-bounds
// cudaMalloc is given the number of elements instead of bytes.
#include <cuda_runtime.h>

__global__ void squares(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = (float)i * i;  // BUG
}

extern "C" void run() {
  const int n = 300;
  static float out[n];
  float* d_out;
  cudaMalloc((void**)&d_out, n);
  squares<<<3, 128>>>(d_out, n);
  cudaMemcpy(out, d_out, n, cudaMemcpyDeviceToHost);
  cudaFree(d_out);
}

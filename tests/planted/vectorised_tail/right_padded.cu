// The arrays are allocated for whole float4; what stands in the padding is never used.
#include <cuda_runtime.h>

__global__ void scale(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int vectors = (n + 3) / 4;
  if (i < vectors) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= a;
    v.y *= a;
    v.z *= a;
    v.w *= a;
    reinterpret_cast<float4*>(y)[i] = v;
  }
}

extern "C" void run() {
  const int n = 1002, padded = (n + 3) / 4 * 4;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float *d_x, *d_y;
  cudaMalloc(&d_x, padded * sizeof(float));
  cudaMalloc(&d_y, padded * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  scale<<<2, 128>>>(d_x, d_y, 3.0f, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

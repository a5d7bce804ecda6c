// kind: race
// All threads compare and store to one shared cell without an atomic, so a smaller value can be the last one stored.
#include <cuda_runtime.h>

__global__ void scale_by_max(const float* x, float* y, int n) {
  __shared__ float best;
  if (threadIdx.x == 0) best = 0.0f;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float v = fabsf(x[i]);
    if (v > best) best = v;  // BUG
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] / best;
}

extern "C" void run() {
  const int n = 200;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 29) % 97 - 40.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  scale_by_max<<<1, 64>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

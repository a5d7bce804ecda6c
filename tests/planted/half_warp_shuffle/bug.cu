// kind: deadlock
// Half of each warp waits at the barrier while the other half waits in a shuffle for all 32 lanes.
#include <cuda_runtime.h>

__global__ void fold(const float* x, float* y) {
  __shared__ float folded[16];
  int lane = threadIdx.x;
  float v = x[lane];
  if (lane < 16) {
    v += __shfl_down_sync(0xffffffff, v, 16);  // BUG
    folded[lane] = v;
  }
  __syncthreads();  // BUG
  y[lane] = folded[lane % 16];
}

extern "C" void run() {
  const int n = 32;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  fold<<<1, 32>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

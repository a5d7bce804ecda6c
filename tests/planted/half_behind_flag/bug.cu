// kind: race
// A half is read without a fence behind its flag, after its neighbour in the same word was written.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void combine(const float* x, float* y) {
  __shared__ __half parts[2];
  __shared__ unsigned ready;
  const int row = blockIdx.x, lane = threadIdx.x;
  if (lane == 0) ready = 0;
  __syncthreads();
  if (lane == 0) {
    parts[0] = __float2half(x[2 * row]);  // BUG
    atomicAdd(&ready, 1u);
  }
  if (lane == 32) {
    while (atomicAdd(&ready, 0u) == 0) {
    }
    parts[1] = __float2half(x[2 * row + 1]);
    y[row] = __half2float(parts[0]) + __half2float(parts[1]);  // BUG
  }
}

extern "C" void run() {
  const int rows = 3;
  float x[2 * rows], y[rows];
  for (int i = 0; i < 2 * rows; ++i) x[i] = i % 8;
  float *d_x, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  combine<<<rows, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// The launch gives room for both arrays.
#include <cuda_runtime.h>

__global__ void mean_and_max(const float* x, float* out, int cols) {
  extern __shared__ float smem[];
  float* sums = smem;
  float* maxima = smem + blockDim.x;
  int t = threadIdx.x;
  float sum = 0.f, best = -INFINITY;
  for (int c = t; c < cols; c += blockDim.x) {
    float v = x[blockIdx.x * cols + c];
    sum += v;
    best = fmaxf(best, v);
  }
  sums[t] = sum;
  maxima[t] = best;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s /= 2) {
    if (t < s) {
      sums[t] += sums[t + s];
      maxima[t] = fmaxf(maxima[t], maxima[t + s]);
    }
    __syncthreads();
  }
  if (t == 0) {
    out[blockIdx.x * 2] = sums[0] / cols;
    out[blockIdx.x * 2 + 1] = maxima[0];
  }
}

extern "C" void run() {
  const int rows = 2, cols = 100, threads = 64;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 23;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float out[rows * 2];
  float* d_out;
  cudaMalloc(&d_out, rows * 2 * sizeof(float));
  mean_and_max<<<rows, threads, 2 * threads * sizeof(float)>>>(d_x, d_out, cols);
  cudaMemcpy(out, d_out, rows * 2 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_out);
}

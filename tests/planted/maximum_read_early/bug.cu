// kind: race
// The threads read the shared maximum right behind their own atomicMax, when others have still to give theirs.
#include <cuda_runtime.h>

__global__ void quantize(const float* x, signed char* q, float* scales, int cols) {
  __shared__ int bits;
  if (threadIdx.x == 0) bits = 0;
  __syncthreads();
  float mine = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) mine = fmaxf(mine, fabsf(x[blockIdx.x * cols + c]));
  atomicMax(&bits, __float_as_int(mine));  // BUG
  float scale = __int_as_float(bits) / 127.0f;  // BUG
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {
    q[blockIdx.x * cols + c] = (signed char)rintf(x[blockIdx.x * cols + c] / scale);
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

extern "C" void run() {
  const int rows = 2, cols = 100;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = (i * 37) % 83 - 40.0f;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static signed char q[rows * cols];
  signed char* d_q;
  cudaMalloc(&d_q, sizeof(q));
  static float scales[rows];
  float* d_scales;
  cudaMalloc(&d_scales, rows * sizeof(float));
  quantize<<<rows, 64>>>(d_x, d_q, d_scales, cols);
  cudaMemcpy(q, d_q, sizeof(q), cudaMemcpyDeviceToHost);
  cudaFree(d_q);
  cudaMemcpy(scales, d_scales, rows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_scales);
}

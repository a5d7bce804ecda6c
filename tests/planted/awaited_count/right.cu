// The consumer waits until the count reaches the number of producers, each of which counts once.
#include <cuda_runtime.h>

__global__ void produce_consume(const float* x, float* parts, int* arrived, float* total, int n) {
  const int producers = gridDim.x - 1;
  if (blockIdx.x < producers) {
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += producers * blockDim.x) v += x[i];
    for (int offset = 16; offset > 0; offset /= 2) v += __shfl_down_sync(0xffffffff, v, offset);
    if (threadIdx.x == 0) {
      parts[blockIdx.x] = v;
      __threadfence();
      atomicAdd(arrived, 1);
    }
  } else if (threadIdx.x == 0) {
    while (atomicAdd(arrived, 0) < producers) {
    }
    __threadfence();
    float sum = 0.0f;
    for (int b = 0; b < producers; ++b) sum += parts[b];
    *total = sum;
  }
}

extern "C" void run() {
  const int n = 200;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 6;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_parts;
  cudaMalloc(&d_parts, 3 * sizeof(float));
  static int arrived[1];
  int* d_arrived;
  cudaMalloc(&d_arrived, sizeof(int));
  cudaMemset(d_arrived, 0, sizeof(int));
  static float total[1];
  float* d_total;
  cudaMalloc(&d_total, sizeof(float));
  produce_consume<<<4, 32>>>(d_x, d_parts, d_arrived, d_total, n);
  cudaMemcpy(arrived, d_arrived, sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(total, d_total, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_parts);
  cudaFree(d_arrived);
  cudaFree(d_total);
}

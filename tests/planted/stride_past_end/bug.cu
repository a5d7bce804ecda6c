// kind: overflow
// The loop's counter passes 2^31 with its last step, because the step is large.
#include <cuda_runtime.h>

__global__ void sampled_mean(const float* table, float* sum, int n, int step, int mask) {
  float v = 0.0f;
  for (int i = threadIdx.x; i < n; i += step) v += table[i & mask];  // BUG
  atomicAdd(sum, v);
}

extern "C" void run() {
  const int entries = 64;
  static float table[entries];
  for (int i = 0; i < entries; ++i) table[i] = i;
  float* d_table;
  cudaMalloc(&d_table, entries * sizeof(float));
  cudaMemcpy(d_table, table, entries * sizeof(float), cudaMemcpyHostToDevice);
  static float sum[1];
  float* d_sum;
  cudaMalloc(&d_sum, sizeof(float));
  cudaMemset(d_sum, 0, sizeof(float));
  sampled_mean<<<1, 32>>>(d_table, d_sum, 1900000000, 450000000, entries - 1);
  cudaMemcpy(sum, d_sum, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_table);
  cudaFree(d_sum);
}

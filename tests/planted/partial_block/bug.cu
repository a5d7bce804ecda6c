// kind: uninitialised
// In the last block only some threads fill their cell, but the tree adds up all of them.
#include <cuda_runtime.h>

__global__ void reduce_sum(const float* input, float* output, int n) {
  extern __shared__ float sdata[];
  unsigned int tid = threadIdx.x;
  unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    sdata[tid] = input[i];
  }
  __syncthreads();
  for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (tid < s) {
      sdata[tid] += sdata[tid + s];  // BUG
    }
    __syncthreads();
  }
  if (tid == 0) atomicAdd(output, sdata[0]);
}

extern "C" void run() {
  const int n = 300, threads = 128;
  static float input[n];
  for (int i = 0; i < n; ++i) input[i] = i % 4;
  float* d_input;
  cudaMalloc(&d_input, n * sizeof(float));
  cudaMemcpy(d_input, input, n * sizeof(float), cudaMemcpyHostToDevice);
  static float output[1];
  float* d_output;
  cudaMalloc(&d_output, sizeof(float));
  cudaMemset(d_output, 0, sizeof(float));
  reduce_sum<<<(n + threads - 1) / threads, threads, threads * sizeof(float)>>>(d_input, d_output, n);
  cudaMemcpy(output, d_output, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_input);
  cudaFree(d_output);
}

// kind: race
// The chunks are one element too long, so the last element of a block's chunk is also the first of the next block's.
#include <cuda_runtime.h>

__global__ void fill_chunks(float* out, int n, int chunk) {
  int begin = blockIdx.x * chunk;
  int end = min(begin + chunk, n - 1);
  for (int i = begin + threadIdx.x; i <= end; i += blockDim.x) {
    out[i] = blockIdx.x + 0.5f * (i - begin);  // BUG
  }
}

extern "C" void run() {
  const int n = 250, chunk = 64;
  static float out[n];
  float* d_out;
  cudaMalloc(&d_out, n * sizeof(float));
  fill_chunks<<<(n + chunk - 1) / chunk, 32>>>(d_out, n, chunk);
  cudaMemcpy(out, d_out, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_out);
}

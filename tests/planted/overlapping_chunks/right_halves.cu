// The chunks of halves end in the middle of words, whose two halves different blocks may write.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__global__ void fill_chunks(__half* out, int n, int chunk) {
  int begin = blockIdx.x * chunk;
  int end = min(begin + chunk, n);
  for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
    out[i] = __float2half(blockIdx.x + 0.5f * (i - begin));
  }
}

extern "C" void run() {
  const int n = 250, chunk = 63;
  static __half out[n];
  __half* d_out;
  cudaMalloc(&d_out, n * sizeof(__half));
  fill_chunks<<<(n + chunk - 1) / chunk, 32>>>(d_out, n, chunk);
  cudaMemcpy(out, d_out, n * sizeof(__half), cudaMemcpyDeviceToHost);
  cudaFree(d_out);
}

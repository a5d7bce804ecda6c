// All lanes vote, those beyond n with no.
#include <cuda_runtime.h>

__global__ void pack_signs(const float* x, unsigned int* words, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned int word = 0;
  word = __ballot_sync(0xffffffff, i < n && x[i] < 0.0f);
  __syncwarp();
  if (threadIdx.x % 32 == 0) words[i / 32] = word;
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 3 - 1.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static unsigned int words[3];
  unsigned int* d_words;
  cudaMalloc(&d_words, 3 * sizeof(unsigned int));
  pack_signs<<<1, 96>>>(d_x, d_words, n);
  cudaMemcpy(words, d_words, 3 * sizeof(unsigned int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_words);
}

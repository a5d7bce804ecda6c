// kind: race
// A vote makes lanes meet, but it is no memory barrier.
#include <cuda_runtime.h>

__global__ void neighbours_agree(const int* x, int* agree) {
  __shared__ int cells[64];
  int t = threadIdx.x, warp = t & ~31;
  cells[t] = x[t];  // BUG
  bool positive = __all_sync(0xffffffff, x[t] > 0);
  int right = cells[warp + (t + 1) % 32];  // BUG
  agree[t] = positive && right == x[t];
}

extern "C" void run() {
  const int n = 64;
  static int x[n];
  for (int i = 0; i < n; ++i) x[i] = 1 + i / 3;
  int* d_x;
  cudaMalloc(&d_x, n * sizeof(int));
  cudaMemcpy(d_x, x, n * sizeof(int), cudaMemcpyHostToDevice);
  static int agree[n];
  int* d_agree;
  cudaMalloc(&d_agree, n * sizeof(int));
  neighbours_agree<<<1, n>>>(d_x, d_agree);
  cudaMemcpy(agree, d_agree, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_agree);
}

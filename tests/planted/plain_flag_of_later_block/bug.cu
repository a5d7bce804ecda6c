// kind: race
// Block 0 waits for a plain flag, which block 1 sets. Its loop reads the flag each time, since it writes, too.
#include <cuda_runtime.h>

__global__ void hand_over(const int* x, int* flag, int* tries, int* y) {
  if (blockIdx.x == 1) {
    *y = *x;
    __threadfence();
    *flag = 1;  // BUG
  } else {
    for (int n = 1; *flag == 0; ++n) *tries = n;  // BUG
  }
}

extern "C" void run() {
  const int x = 3;
  int y, *d_x, *d_flag, *d_tries, *d_y;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_flag, sizeof(int));
  cudaMalloc(&d_tries, sizeof(int));
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, &x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemset(d_flag, 0, sizeof(int));
  hand_over<<<2, 1>>>(d_x, d_flag, d_tries, d_y);
  cudaMemcpy(&y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_flag);
  cudaFree(d_tries);
  cudaFree(d_y);
}

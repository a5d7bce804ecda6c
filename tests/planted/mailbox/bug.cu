// kind: race
// The flag says that the mailbox is full, but no fence orders the mailbox before the flag.
#include <cuda_runtime.h>

// Block 0 fills the mailbox, block 1 waits for it.
__global__ void hand_over(const float* x, float* mailbox, volatile int* full, float* y, int n) {
  if (blockIdx.x == 0) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      mailbox[i] = 2.0f * x[i];  // BUG
    }
    __syncthreads();
    if (threadIdx.x == 0) *full = 1;  // BUG
  } else {
    if (threadIdx.x == 0) {
      while (*full == 0) {
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      y[i] = mailbox[i] + 1.0f;  // BUG
    }
  }
}

extern "C" void run() {
  const int n = 100;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_mailbox;
  cudaMalloc(&d_mailbox, n * sizeof(float));
  static int full[1];
  int* d_full;
  cudaMalloc(&d_full, sizeof(int));
  cudaMemset(d_full, 0, sizeof(int));
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  hand_over<<<2, 64>>>(d_x, d_mailbox, d_full, d_y, n);
  cudaMemcpy(full, d_full, sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_mailbox);
  cudaFree(d_full);
  cudaFree(d_y);
}

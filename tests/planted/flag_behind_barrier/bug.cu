// kind: deadlock
// The flag is set behind a barrier that the waiting thread has not reached.
#include <cuda_runtime.h>

__global__ void publish(const int* x, int* y) {
  __shared__ int box;
  __shared__ int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    while (atomicAdd(&flag, 0) == 0) {  // BUG
    }
    __threadfence_block();
    y[0] = box;
  }
  __syncthreads();  // BUG
  if (threadIdx.x == 32) {
    box = x[0] + x[1];
    __threadfence_block();
    atomicExch(&flag, 1);
  }
}

extern "C" void run() {
  static int x[2];
  for (int i = 0; i < 2; ++i) x[i] = i + 4;
  int* d_x;
  cudaMalloc(&d_x, 2 * sizeof(int));
  cudaMemcpy(d_x, x, 2 * sizeof(int), cudaMemcpyHostToDevice);
  static int y[1];
  int* d_y;
  cudaMalloc(&d_y, sizeof(int));
  publish<<<1, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

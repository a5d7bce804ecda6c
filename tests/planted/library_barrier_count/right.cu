// The barrier waits for as many arrivals as there are threads with an element.
#include <cuda/barrier>
#include <cuda_runtime.h>

__global__ void shifted(const float* x, float* y) {
  __shared__ cuda::barrier<cuda::thread_scope_block> written;
  __shared__ float tile[100];
  if (threadIdx.x == 0) init(&written, 100);
  __syncthreads();
  if (threadIdx.x < 100) {
    tile[threadIdx.x] = x[threadIdx.x];
    written.arrive_and_wait();
    y[threadIdx.x] = tile[(threadIdx.x + 1) % 100];
  }
}

extern "C" void run() {
  const int n = 100;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  shifted<<<1, 128>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// One stage may still be on its way: the next one.
#include <cuda/pipeline>
#include <cuda_runtime.h>

__global__ void mirrored(const float* x, float* y) {
  __shared__ float tile[2][64];
  const auto bytes = cuda::aligned_size_t<alignof(float)>(sizeof(float));
  cuda::pipeline<cuda::thread_scope_thread> pipe = cuda::make_pipeline();
  pipe.producer_acquire();
  cuda::memcpy_async(&tile[0][threadIdx.x], x + threadIdx.x, bytes, pipe);
  pipe.producer_commit();
  for (int c = 0; c < 4; ++c) {
    pipe.producer_acquire();
    if (c < 3) cuda::memcpy_async(&tile[(c + 1) % 2][threadIdx.x], x + 64 * (c + 1) + threadIdx.x, bytes, pipe);
    pipe.producer_commit();
    cuda::pipeline_consumer_wait_prior<1>(pipe);
    __syncthreads();
    y[64 * c + threadIdx.x] = 2 * tile[c % 2][63 - threadIdx.x];
    pipe.consumer_release();
    __syncthreads();
  }
}

extern "C" void run() {
  const int n = 256;
  static float x[n], y[n];
  for (int i = 0; i < n; ++i) x[i] = i % 13;
  float *d_x, *d_y;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  mirrored<<<1, 64>>>(d_x, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

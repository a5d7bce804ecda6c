// Every launch keeps the kernel's bound: by a number, or by what CUDA says about the kernel.
#include <cuda_runtime.h>

#define BOUNDED(name, bound)                                              \
  __global__ void __launch_bounds__(bound) name(const float* x, float* y, int n) { \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                        \
    if (i < n) y[i] = 2 * x[i];                                           \
  }
BOUNDED(twice, 128)

// A parameter has the kernel's name.
__global__ void __launch_bounds__(256) scale(const float* x, float* y, float scale, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scale * x[i];
}

__global__ void __launch_bounds__(512, 2) shift(const float* x, float* y, int n) {
  __shared__ float last;
  if (threadIdx.x == 0) last = 1;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + last;
}

template <int kThreads, typename T>
__launch_bounds__(2 * kThreads) __global__ void add(const T* x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + T(1);
}
template <>
__global__ void __launch_bounds__(1024) add<512, int>(const int*, int*, int) {}

extern "C" void run() {
  const int n = 1000;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  scale<<<(n + 255) / 256, 256>>>(d_x, d_y, 2.0f, n);
  cudaFuncAttributes about;
  cudaFuncGetAttributes(&about, twice);
  twice<<<(n + about.maxThreadsPerBlock - 1) / about.maxThreadsPerBlock, about.maxThreadsPerBlock>>>(d_x, d_y, n);
  int blocks = 0, threads = 0;
  cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, shift, 0, 0);
  shift<<<(n + threads - 1) / threads, threads>>>(d_x, d_y, n);
  cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add<64, float>);
  add<64><<<(n + threads - 1) / threads, threads>>>(d_x, d_y, n);
  add<512, float><<<1, 1024>>>(d_x, d_y, n);
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// 227 KB of shared memory are the most that a block may have.
#include <cuda_runtime.h>

template <typename T>
__global__ void copy_through_shared(const T* x, T* y, int n) {
  extern __shared__ __align__(16) unsigned char raw[];
  T* cells = reinterpret_cast<T*>(raw);
  for (int i = threadIdx.x; i < n; i += blockDim.x) cells[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = cells[n - 1 - i];
}

extern "C" void run() {
  const int n = 100, bytes = 227 * 1024;
  static double x[n];
  for (int i = 0; i < n; ++i) x[i] = i;
  double* d_x;
  cudaMalloc(&d_x, n * sizeof(double));
  cudaMemcpy(d_x, x, n * sizeof(double), cudaMemcpyHostToDevice);
  static double y[n];
  double* d_y;
  cudaMalloc(&d_y, n * sizeof(double));
  cudaFuncSetAttribute(copy_through_shared<double>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  copy_through_shared<double><<<1, 64, bytes>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

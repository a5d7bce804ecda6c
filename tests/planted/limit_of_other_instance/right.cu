// The limit for shared memory is raised for each instance that is launched, by whatever name.
#include <cuda_runtime.h>

template <int kThreads, typename T, typename Sum = float>
__global__ void reverse(const T* x, Sum* y, int n) {
  extern __shared__ float tile[];
  int i = blockIdx.x * kThreads + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : T(0);
  __syncthreads();
  if (i < n) y[i] = tile[kThreads - 1 - threadIdx.x];
}

template <typename T>
void launch(const T* x, T* y, int n, int bytes) {
  auto kernel = n > 1000 ? reverse<64, T> : reverse<128, T>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<n / 128, 128, bytes>>>(x, y, n);
  reverse<128><<<n / 128, 128, bytes>>>(x, y, n);
}

extern "C" void run() {
  const int n = 256;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  launch(d_x, d_y, n, 65536);
  const auto wide = (const void*)reverse<64, float, double>;
  cudaFuncSetAttribute(wide, cudaFuncAttributeMaxDynamicSharedMemorySize, 98304);
  double* d_z;
  cudaMalloc(&d_z, n * sizeof(double));
  reverse<64><<<n / 64, 64, 98304>>>(d_x, d_z, n);
  void* arguments[] = {&d_x, &d_z, const_cast<int*>(&n)};
  cudaLaunchKernel((const void*)reverse<64, float, double>, dim3(n / 64), dim3(64), arguments, 98304, nullptr);
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
  cudaFree(d_z);
}

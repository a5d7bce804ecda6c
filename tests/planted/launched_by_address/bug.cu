// kind: out-of-bounds
// A table holds the addresses of a template's instances; one of them reads behind the end.
#include <cuda_runtime.h>

struct Parameters {
  const float* x;
  float* y;
  int n;
};

template <typename T, int kAhead>
static __global__ void ahead(Parameters p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) p.y[i] = T(p.x[i + kAhead]);  // BUG
}

static void launch(const void* kernel, Parameters p) {
  void* arguments[] = {&p};
  cudaLaunchKernel(kernel, dim3((p.n + 63) / 64), dim3(64), arguments, 0, nullptr);
}

extern "C" void run() {
  const int n = 250;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  const void* const kernels[] = {(void*)ahead<float, 0>, (void*)ahead<double, 1>};
  launch(kernels[0], {d_x, d_y, n});
  launch(kernels[1], {d_x, d_y, n});
  cudaMemcpy(x, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

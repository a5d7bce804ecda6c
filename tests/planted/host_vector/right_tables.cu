// The kernel reads constants of every kind, calls through a vtable, prints and asserts.
#include <cuda_runtime.h>

#include <cassert>
#include <cstdio>

constexpr float kFactors[4] = {2.0f, 3.0f, 4.0f, 5.0f};
__constant__ float shifts[2] = {1.0f, 2.0f};
__device__ float total[2];

struct Shape {
  __device__ virtual float area(float side) const { return side; }
};
struct Square : Shape {
  __device__ float area(float side) const override { return side * side; }
};

__global__ void scale(const float* x, float* y, int n) {
  static const float table[3] = {0.5f, 0.25f, 0.125f};
  static __device__ float bias = 1.0f;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const char* const names[2] = {"even", "odd"};
  Square square;
  const Shape* const shape = &square;
  assert(x[i] >= 0.0f);
  if (i == n) printf("%s %f\n", names[i % 2], x[i]);
  y[i] = kFactors[i % 4] * x[i] + table[i % 3] + shifts[i % 2] + bias + shape->area(x[i]) + (names[i % 2][0] == 'e');
  atomicAdd(&total[i % 2], y[i]);
}

extern "C" void run() {
  const int n = 90;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = i % 8;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  scale<<<1, 96>>>(d_x, d_y, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}

// kind: deadlock
// The barrier over the grid waits for one arrival a thread, but only one thread of each block arrives.
#include <cuda_runtime.h>

// The few blocks of this grid are all resident at once.
__device__ void grid_sync(unsigned int* arrived, unsigned int expected) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (atomicAdd(arrived, 0u) < expected) {  // BUG
    }
    __threadfence();
  }
  __syncthreads();  // BUG
}

__global__ void normalize(const float* x, float* parts, float* y, unsigned int* arrived, int n) {
  __shared__ float cells[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0.0f;
  cells[threadIdx.x] = v;
  __syncthreads();
  for (int s = 32; s > 0; s >>= 1) {
    if (threadIdx.x < s) cells[threadIdx.x] += cells[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) parts[blockIdx.x] = cells[0];
  grid_sync(arrived, gridDim.x * blockDim.x);
  float total = 0.0f;
  for (int b = 0; b < gridDim.x; ++b) total += parts[b];
  if (i < n) y[i] = v / total;
}

extern "C" void run() {
  const int n = 150, blocks = 3;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = 1 + i % 4;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  float* d_parts;
  cudaMalloc(&d_parts, blocks * sizeof(float));
  static float y[n];
  float* d_y;
  cudaMalloc(&d_y, n * sizeof(float));
  static unsigned int arrived[1];
  unsigned int* d_arrived;
  cudaMalloc(&d_arrived, sizeof(unsigned int));
  cudaMemset(d_arrived, 0, sizeof(unsigned int));
  normalize<<<blocks, 64>>>(d_x, d_parts, d_y, d_arrived, n);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(arrived, d_arrived, sizeof(unsigned int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_parts);
  cudaFree(d_y);
  cudaFree(d_arrived);
}

// The barrier after the halo loads makes the neighbours' cells visible.
#include <cuda_runtime.h>

constexpr int RADIUS = 3;
constexpr int BLOCK_SIZE = 64;

__global__ void stencil_1d(const int* in, int* out, int n) {
  __shared__ int temp[BLOCK_SIZE + 2 * RADIUS];
  int gindex = threadIdx.x + blockIdx.x * blockDim.x;
  int lindex = threadIdx.x + RADIUS;
  temp[lindex] = gindex < n ? in[gindex] : 0;
  if (threadIdx.x < RADIUS) {
    int left = gindex - RADIUS, right = gindex + BLOCK_SIZE;
    temp[lindex - RADIUS] = left >= 0 ? in[left] : 0;
    temp[lindex + BLOCK_SIZE] = right < n ? in[right] : 0;
  }
  __syncthreads();
  int result = 0;
  for (int offset = -RADIUS; offset <= RADIUS; offset++) {
    result += temp[lindex + offset];
  }
  if (gindex < n) out[gindex] = result;
}

extern "C" void run() {
  const int n = 200;
  static int in[n];
  for (int i = 0; i < n; ++i) in[i] = i % 9;
  int* d_in;
  cudaMalloc(&d_in, n * sizeof(int));
  cudaMemcpy(d_in, in, n * sizeof(int), cudaMemcpyHostToDevice);
  static int out[n];
  int* d_out;
  cudaMalloc(&d_out, n * sizeof(int));
  stencil_1d<<<(n + BLOCK_SIZE - 1) / BLOCK_SIZE, BLOCK_SIZE>>>(d_in, d_out, n);
  cudaMemcpy(out, d_out, n * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_in);
  cudaFree(d_out);
}

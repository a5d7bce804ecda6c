// kind: misaligned
// The rows of the tile are padded to 33 floats against bank conflicts, which no float4 can be loaded from.
#include <cuda_runtime.h>

constexpr int PITCH = 33;

__global__ void row_products(const float* a, float* out) {
  __shared__ __align__(16) float tile[8][PITCH];
  for (int k = threadIdx.x; k < 8 * 32; k += blockDim.x) tile[k / 32][k % 32] = a[k];
  __syncthreads();
  int row = threadIdx.x / 8, part = threadIdx.x % 8;
  float4 v = *reinterpret_cast<float4*>(&tile[row][part * 4]);  // BUG
  float sum = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  for (int offset = 4; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffff, sum, offset, 8);
  if (part == 0) out[row] = sum;
}

extern "C" void run() {
  static float a[8 * 32];
  for (int i = 0; i < 8 * 32; ++i) a[i] = i % 9;
  float* d_a;
  cudaMalloc(&d_a, 8 * 32 * sizeof(float));
  cudaMemcpy(d_a, a, 8 * 32 * sizeof(float), cudaMemcpyHostToDevice);
  static float out[8];
  float* d_out;
  cudaMalloc(&d_out, 8 * sizeof(float));
  row_products<<<1, 64>>>(d_a, d_out);
  cudaMemcpy(out, d_out, 8 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_a);
  cudaFree(d_out);
}

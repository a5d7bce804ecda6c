// kind: race
// also: uninitialised
// The lanes read the product that the warp stored to shared memory, without a __syncwarp behind the store.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

__global__ void product_and_bias(const __half* a, const __half* b, const float* bias, float* c) {
  __shared__ __align__(32) float tile[16 * 16];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(left, a, 16);
  wmma::load_matrix_sync(right, b, 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(tile, sum, 16, wmma::mem_row_major);  // BUG
  for (int k = threadIdx.x; k < 256; k += 32) c[k] = fmaxf(tile[k % 16 * 16 + k / 16] + bias[k / 16], 0.0f);  // BUG
}

extern "C" void run() {
  static __half a[256], b[256];
  for (int i = 0; i < 256; ++i) {
    a[i] = __float2half((i % 7) * 0.5f);
    b[i] = __float2half((i % 5) - 2.0f);
  }
  __half *d_a, *d_b;
  cudaMalloc(&d_a, sizeof(a));
  cudaMalloc(&d_b, sizeof(b));
  cudaMemcpy(d_a, a, sizeof(a), cudaMemcpyHostToDevice);
  cudaMemcpy(d_b, b, sizeof(b), cudaMemcpyHostToDevice);
  static float bias[16];
  for (int i = 0; i < 16; ++i) bias[i] = i;
  float* d_bias;
  cudaMalloc(&d_bias, 16 * sizeof(float));
  cudaMemcpy(d_bias, bias, 16 * sizeof(float), cudaMemcpyHostToDevice);
  static float c[256];
  float* d_c;
  cudaMalloc(&d_c, 256 * sizeof(float));
  product_and_bias<<<1, 32>>>(d_a, d_b, d_bias, d_c);
  cudaFree(d_a);
  cudaFree(d_b);
  cudaMemcpy(c, d_c, 256 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_bias);
  cudaFree(d_c);
}

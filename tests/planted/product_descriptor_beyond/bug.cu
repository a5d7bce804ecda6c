// kind: out-of-bounds
// The descriptor begins one group of rows too late, so that half of what wgmma reads lies behind the matrix.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// 16 bytes of 8 rows side by side; the next 16 bytes of depth lie 128 bytes on, the next 8 rows 256.
__device__ unsigned long long descriptor(const void* place) {
  return static_cast<unsigned long long>((at(place) & 0x3ffff) >> 4) | 8ull << 16 | 16ull << 32;
}
__device__ int place_of(int row, int depth) { return row / 8 * 128 + depth / 8 * 64 + row % 8 * 8 + depth % 8; }
__device__ void fence_sums() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void multiply(float (&c)[4], unsigned long long left, unsigned long long right) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(left), "l"(right));  // BUG
}
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
__device__ void store_sums(const float (&c)[4], float* y) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 4; ++i) y[(row + i / 2 * 8) * 8 + column + i % 2] = c[i];
}

__global__ void product(const __half* a, const __half* b, float* y) {
  __shared__ __align__(128) __half left[64 * 16], right[8 * 16];
  for (int i = threadIdx.x; i < 64 * 16; i += 128) left[place_of(i / 16, i % 16)] = a[i];
  for (int i = threadIdx.x; i < 8 * 16; i += 128) right[place_of(i / 16, i % 16)] = b[i];
  fence_proxy();
  __syncthreads();
  float c[4] = {};
  fence_sums();
  multiply(c, descriptor(left), descriptor(right + 64));
  commit();
  wait_products<0>();
  store_sums(c, y);
}

extern "C" void run() {
  const int m = 64 * 16, n = 8 * 16;
  static __half a[m], b[n];
  static float y[64 * 8];
  for (int i = 0; i < m; ++i) a[i] = __float2half(i % 7);
  for (int i = 0; i < n; ++i) b[i] = __float2half(i % 5);
  __half *d_a, *d_b;
  float* d_y;
  cudaMalloc(&d_a, sizeof a);
  cudaMalloc(&d_b, sizeof b);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_a, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(d_b, b, sizeof b, cudaMemcpyHostToDevice);
  product<<<1, 128>>>(d_a, d_b, d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_a);
  cudaFree(d_b);
  cudaFree(d_y);
}

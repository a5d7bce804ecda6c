// Kernels as the rewriter leaves them, for test_runtime.py: SHARED and LAUNCH spell out what it generates.
#include "cuemu_prelude.h"

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define SHARED(T, name, extents)              \
  typedef T cuemu_type_##name extents;        \
  static char cuemu_key_##name;               \
  cuemu_type_##name& name = ::cuemu::shared_slot<cuemu_type_##name>(&cuemu_key_##name, 0, #name, __LINE__)
#define LAUNCH(kernel, grid, block, shared, ...) \
  ::cuemu::launch(                               \
      #kernel, __LINE__, ::cuemu::config(grid, block, shared, 0), [&](auto const&... a) { kernel(a...); })(__VA_ARGS__)
#define TEST extern "C"

__global__ void block_sum(const float* x, float* out, int n) {
  SHARED(float, part, [32]);
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}
TEST void run_block_sum(const float* x, float* out, int n, int blocks, int threads) {
  LAUNCH(block_sum, blocks, threads, 0, x, out, n);
}

// One tile of size blockDim.x x blockDim.x of each factor at a time.
__global__ void product(const float* a, const float* b, float* c, int n) {
  float* tiles = ::cuemu::dynamic_shared<float>(16);
  const int width = blockDim.x, x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * width + y, column = blockIdx.x * width + x;
  float* tile_a = tiles;
  float* tile_b = tiles + width * width;
  float sum = 0;
  for (int k = 0; k < n; k += width) {
    tile_a[y * width + x] = row < n && k + x < n ? a[row * n + k + x] : 0;
    tile_b[y * width + x] = column < n && k + y < n ? b[(k + y) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < width; ++i) sum += tile_a[y * width + i] * tile_b[i * width + x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}
TEST void run_product(const float* a, const float* b, float* c, int n, int width, int shared_bytes) {
  const dim3 gridDim((n + width - 1) / width, (n + width - 1) / width), blockDim(width, width);
  LAUNCH(product, gridDim, blockDim, shared_bytes, a, b, c, n);
}

__global__ void histogram(const int* x, int* out, int n) {
  SHARED(int, bins, [16]);
  for (int i = threadIdx.x; i < 16; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < 16; i += blockDim.x) atomicAdd(&out[i], bins[i]);
}
TEST void run_histogram(const int* x, int* out, int n) { LAUNCH(histogram, (n + 127) / 128, 128, 0, x, out, n); }

__global__ void early_return(int* out, int live) {
  if (static_cast<int>(threadIdx.x) >= live) return;
  for (int i = 0; i < 5; ++i) {
    __syncthreads();
    out[threadIdx.x] += 1;
  }
  out[threadIdx.x] += 10 * __syncthreads_count(threadIdx.x % 2);
  out[threadIdx.x] += 10000 * __syncthreads_and(threadIdx.x > 0) + 20000 * __syncthreads_or(threadIdx.x == 3);
}
TEST void run_early_return(int* out, int live) { LAUNCH(early_return, 1, 96, 0, out, live); }

__global__ void indices(int* out) {
  const dim3 size = blockDim;
  const uint3 at = threadIdx;
  const int thread = (at.z * size.y + at.y) * size.x + at.x;
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * size.x * size.y * size.z + thread] = block * 1000 + thread;
}
TEST void run_indices(int* out) { LAUNCH(indices, dim3(2, 3, 4), dim3(3, 4, 5), 0, out); }

// Eight results a lane, one after the other for all lanes.
__global__ void warp_functions(int* out) {
  const int lane = threadIdx.x;
  out[lane] = __shfl_sync(~0u, lane, 3, 8);
  out[32 + lane] = __shfl_up_sync(~0u, lane, 2, 16);
  out[64 + lane] = static_cast<int>(__shfl_down_sync(~0u, static_cast<double>(lane), 5));
  out[96 + lane] = static_cast<int>(__ballot_sync(~0u, lane < 4));
  out[128 + lane] = static_cast<int>(__match_any_sync(~0u, lane / 16));
  out[160 + lane] = __reduce_add_sync(~0u, lane) + 1000 * __any_sync(~0u, lane == 7) + 2000 * __all_sync(~0u, lane < 31);
  if (lane >= 8) return;
  out[192 + lane] = __popc(__activemask()) <= 32 ? __shfl_xor_sync(0xffu, lane, 1) : 0;
  out[224 + lane] = static_cast<int>(__half2float(__shfl_sync(0xffu, __float2half(lane * 2.0f), lane ^ 2)));
}
TEST void run_warp_functions(int* out) { LAUNCH(warp_functions, 1, 32, 0, out); }

__global__ void hidden_race(int* out) {
  SHARED(int, values, [64]);
  values[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = values[threadIdx.x / 2];
}
TEST void run_hidden_race(int* out) { LAUNCH(hidden_race, 1, 64, 0, out); }

__global__ void poison(float* out) {
  SHARED(float, unwritten, [4]);
  out[0] = unwritten[1];
  out[1] = ::cuemu::dynamic_shared<float>(0)[7];
}
TEST void run_poison(float* out) { LAUNCH(poison, 1, 1, 64, out); }

__global__ void lock(int* locks, int* counter) {
  for (bool done = false; !done;) {
    if (atomicCAS(locks, 0, 1) == 0) {
      *counter += 1;
      __threadfence();
      atomicExch(locks, 0);
      done = true;
    }
  }
}
TEST void run_lock(int* locks, int* counter) { LAUNCH(lock, 8, 128, 0, locks, counter); }

__global__ void float_atomics(float* sum, double* wide_sum, int* extrema, __half* half_sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(sum, 1.0f);
  atomicAdd(wide_sum, 0.5);
  atomicMin(&extrema[0], -i);
  atomicMax(&extrema[1], i);
  if (i < 512) atomicAdd(half_sum, __float2half(1.0f));
}
TEST void run_float_atomics(float* sum, double* wide_sum, int* extrema, void* half_sum) {
  LAUNCH(float_atomics, 16, 64, 0, sum, wide_sum, extrema, static_cast<__half*>(half_sum));
}

__global__ void divergence(int) {
  if (threadIdx.x < 10) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
TEST void run_divergence() { LAUNCH(divergence, 1, 64, 0, 0); }

__global__ void deadlock(int) {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __shfl_sync(~0u, 1, 0);
  }
}
TEST void run_deadlock() { LAUNCH(deadlock, 2, 64, 0, 0); }

__global__ void wrong_mask(int) { __shfl_sync(0xfffeu, 1, 0); }
TEST void run_wrong_mask() { LAUNCH(wrong_mask, 1, 16, 0, 0); }

__global__ void lanes_disagree(int) {
  if (threadIdx.x % 2) {
    __shfl_sync(~0u, 1, 0);
  } else {
    __ballot_sync(~0u, 1);
  }
}
TEST void run_lanes_disagree() { LAUNCH(lanes_disagree, 1, 32, 0, 0); }

__global__ void shared_overrun(int shift) {
  SHARED(int, tile, [64]);
  (&tile[0])[static_cast<int>(threadIdx.x) + shift] = 3;
}
TEST void run_shared_overrun(int shift) { LAUNCH(shared_overrun, 1, 64, 0, shift); }

__global__ void fill(float* out, int n, int shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i + shift] = i;
}
TEST int run_global_overrun(int n, int shift) {
  float* data = nullptr;
  cudaMalloc(&data, n * sizeof(float));
  LAUNCH(fill, (n + 31) / 32, 32, 0, data, n, shift);
  cudaFree(data);
  return cudaGetLastError();
}
TEST int run_configuration(int grid, int block, int block_z, int shared_bytes) {
  LAUNCH(fill, grid, dim3(block, 1, block_z), shared_bytes, static_cast<float*>(nullptr), 0, 0);
  return cudaGetLastError();
}
TEST int run_raised_limit(int shared_bytes) {
  const cudaError_t refused =
      ::cuemu::func_set_attribute("product", cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (refused != cudaSuccess) return cudaGetLastError();
  LAUNCH(product, 1, 1, shared_bytes, static_cast<const float*>(nullptr), static_cast<const float*>(nullptr),
         static_cast<float*>(nullptr), 0);
  return cudaGetLastError();
}

__global__ void much_shared(int) {
  SHARED(float, large, [12289]);
  large[threadIdx.x] = 0;
}
TEST void run_much_shared() { LAUNCH(much_shared, 1, 1, 0, 0); }

__global__ void asserting(int n) { assert(static_cast<int>(threadIdx.x) < n); }
TEST void run_assert(int n) { LAUNCH(asserting, 1, 64, 0, n); }

__global__ void trapping(int n) {
  if (static_cast<int>(threadIdx.x) == n) __trap();
}
TEST void run_trap(int n) { LAUNCH(trapping, 1, 64, 0, n); }

__constant__ float coefficients[4];
__global__ void scale(float* x, float factor) { x[threadIdx.x] *= factor * coefficients[threadIdx.x % 4]; }
TEST float run_host_api(int n) {
  float host[64], back[64], *device = nullptr;
  for (int i = 0; i < n; ++i) host[i] = i;
  const float given[4] = {1, 2, 3, 4};
  cudaStream_t stream;
  cudaEvent_t start, end;
  cudaStreamCreate(&stream);
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  cudaMalloc(&device, n * sizeof(float));
  cudaMemcpyToSymbol(coefficients, given, sizeof given);
  cudaMemcpyAsync(device, host, n * sizeof(float), cudaMemcpyHostToDevice, stream);
  cudaEventRecord(start, stream);
  float factor = 2.0f;
  void* parameters[] = {&device, &factor};
  ::cuemu::launch_kernel("scale", __LINE__, scale, dim3(1), dim3(n), parameters, 0, stream);
  cudaEventRecord(end, stream);
  float elapsed_ms = -1.0f;
  const bool timed = cudaEventElapsedTime(&elapsed_ms, start, end) == cudaSuccess && elapsed_ms >= 0.0f;
  const bool too_long = cudaMemcpy(back, device, (n + 1) * sizeof(float), cudaMemcpyDeviceToHost) == cudaErrorInvalidValue;
  cudaGetLastError();
  cudaMemcpy(back, device, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(device);
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += back[i];
  return timed && too_long && cudaDeviceSynchronize() == cudaSuccess ? sum : -1.0f;
}

TEST unsigned short to_half(float x) { return __half_as_ushort(__float2half(x)); }
TEST unsigned short double_to_half(double x) { return __half_as_ushort(__double2half(x)); }
TEST float from_half(unsigned short bits) { return __half2float(__ushort_as_half(bits)); }
TEST unsigned short to_bfloat16(float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); }
TEST unsigned short half_fma(unsigned short x, unsigned short y, unsigned short z) {
  return __half_as_ushort(__hfma(__ushort_as_half(x), __ushort_as_half(y), __ushort_as_half(z)));
}
TEST float bfloat16_fma(float x, float y, float z) {
  return __bfloat162float(__hfma(__float2bfloat16(x), __float2bfloat16(y), __float2bfloat16(z)));
}

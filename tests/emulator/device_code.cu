// Symbols, printf, assertions, sleeping and clocks in kernels.
#include <cassert>
#include <cstdio>

#define TEST extern "C"

__constant__ float weights[6];
__constant__ int table[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int counter = 5;
__device__ float* target;
template <typename T> __constant__ T offset_of_all = T(100);

__global__ void weigh(float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = weights[i % 6] + table[i % 2][i % 3] + offset_of_all<float>;
  if (i == 0) target[0] = 7;
  atomicAdd(&counter, 1);
}

// Copies to the symbol in two parts, the second by the asynchronous form; answers the counter, or -1 for an error.
TEST int run_weigh(const float* values, float* out, int n) {
  float *device, *at_target, *address = nullptr;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaMalloc(&device, n * sizeof(float));
  cudaMalloc(&at_target, sizeof(float));
  bool well = cudaMemcpyToSymbol(weights, values, 2 * sizeof(float)) == cudaSuccess;
  well &= cudaMemcpyToSymbolAsync(weights, values + 2, 4 * sizeof(float), 2 * sizeof(float), cudaMemcpyHostToDevice, stream) == cudaSuccess;
  well &= cudaMemcpyToSymbol(target, &at_target, sizeof at_target) == cudaSuccess;
  well &= cudaGetSymbolAddress(reinterpret_cast<void**>(&address), offset_of_all<float>) == cudaSuccess;
  const float other = 1000;
  well &= cudaMemcpy(address, &other, sizeof other, cudaMemcpyHostToDevice) == cudaSuccess;
  size_t bytes = 0;
  well &= cudaGetSymbolSize(&bytes, table) == cudaSuccess && bytes == 24;
  const int zero = 0;
  well &= cudaMemcpyToSymbol(counter, &zero, sizeof zero) == cudaSuccess;
  weigh<<<(n + 31) / 32, 32, 0, stream>>>(device, n);
  int counted = -1;
  float at = 0, back[6];
  well &= cudaMemcpyFromSymbol(&counted, counter, sizeof counted) == cudaSuccess;
  well &= cudaMemcpyFromSymbolAsync(back, weights, 3 * sizeof(float), 3 * sizeof(float), cudaMemcpyDeviceToHost, stream) == cudaSuccess;
  well &= back[0] == values[3] && back[2] == values[5];
  well &= cudaMemcpy(&at, at_target, sizeof at, cudaMemcpyDeviceToHost) == cudaSuccess && at == 7;
  well &= cudaMemcpy(out, device, n * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess;
  well &= cudaMemcpyToSymbol(weights, values, 7 * sizeof(float)) == cudaErrorInvalidValue;
  well &= cudaMemcpyFromSymbol(back, weights, sizeof(float), 6 * sizeof(float)) == cudaErrorInvalidValue;
  cudaGetLastError();
  cudaFree(device);
  cudaFree(at_target);
  cudaStreamDestroy(stream);
  return well ? counted : -1;
}

__global__ void speak(int only) {
  if (threadIdx.x % 32 == 3 && static_cast<int>(blockIdx.x) == only) {
    printf("block %d, thread %u: %.2f %s\n", static_cast<int>(blockIdx.x), threadIdx.x, threadIdx.x / 4.0, "quarters");
  }
}
TEST void run_speak(int only) {
  speak<<<4, 64>>>(only);
  cudaDeviceSynchronize();
  fflush(stdout);
}

__global__ void asserting(const int* values, int n) {
  const int i = threadIdx.x;
  assert(i >= n || values[i] > 0);
}
TEST int run_asserting(const int* values, int n) {
  asserting<<<1, 64>>>(values, n);
  return cudaDeviceSynchronize();
}

// Thread 0 waits until its clock has moved on and thread 40 has spoken; fences of all three kinds.
__global__ void waits(int* out) {
  __shared__ volatile int flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  const long long start = clock64();
  if (threadIdx.x == 0) {
    unsigned pause = 8;
    while (flag == 0 || clock64() == start) {
      __nanosleep(pause);
      if (pause < 256) pause *= 2;
    }
    __threadfence_block();
    out[0] = flag;
    out[1] = clock64() > start;
  }
  if (threadIdx.x == 40) {
    out[2] = 1;
    __threadfence();
    __threadfence_system();
    flag = 9;
  }
}
TEST void run_waits(int* out) { waits<<<1, 64>>>(out); }

struct Sizes {
  long rows;
  const int columns;
  float scale[2];
};

__global__ void fill(float* out, const Sizes sizes, int more) {
  asm volatile("" ::: "memory");
  for (int i = threadIdx.x; i < sizes.rows * sizes.columns; i += blockDim.x) out[i] = i * sizes.scale[1] + more;
  int seen = threadIdx.x;
  asm volatile("" : "+r"(seen)::"memory");
}
template <int Threads, typename T> __global__ void fill_all(T* out, Sizes sizes) { out[threadIdx.x] = sizes.rows + Threads; }

TEST void run_braces(float* out, int rows, int columns) {
  fill<<<1, 32>>>(out, {rows, columns, {0, 2}}, {3});
  fill_all<2, float><<<1, 2>>>(out, {.rows = rows});
}

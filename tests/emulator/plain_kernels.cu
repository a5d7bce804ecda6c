// Kernels that wait for nothing, and so loop over their block's threads by themselves; those called *_by_threads meet at
// a barrier besides, and so do not.
#include <cassert>
#include <cstdint>

// As in torch's headers.
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__((threads))
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__((threads), (blocks))

#define TEST extern "C"
#define POSITION_OF(size) (blockIdx.x * (size) + threadIdx.x)
#define POSITION (blockIdx.x * blockDim.x + threadIdx.x)

C10_LAUNCH_BOUNDS_1(1024) __global__ void scale(const float* x, float* y, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i] + 1.0f;
}
TEST void run_scale(const float* x, float* y, int n, int threads) { scale<<<(n + threads - 1) / threads, threads>>>(x, y, 0.1f, n); }

__global__ void scale_by_threads(const float* x, float* y, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i] + 1.0f;
  __syncthreads();
}
TEST void run_scale_by_threads(const float* x, float* y, int n, int threads) {
  scale_by_threads<<<(n + threads - 1) / threads, threads>>>(x, y, 0.1f, n);
}

// The parameters are each thread's own.
__global__ void clamp_root(const float* x, float* y, std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  x += i;
  y += i;
  const float clamped = fmaxf(fminf(*x, 50.0f), 0.25f);
  *y = sqrtf(clamped) / (1.0f + clamped);
}
TEST void run_clamp_root(const float* x, float* y, int n) { clamp_root<<<(n + 95) / 96, 96>>>(x, y, n); }

// Each element but the first takes what stands before it: one thread after the other in the forward order.
__global__ void shift(float* x, int n) {
  const unsigned i = POSITION;
  if (i + 1 < n) x[i + 1] = x[i] + 1.0f;
}
TEST void run_shift(float* x, int n, int blocks) { shift<<<blocks, 128>>>(x, n); }

// Which thread comes when.
__global__ void order(int* counter, int* out) {
  const int dim = blockDim.x * blockDim.y;
  out[atomicAdd(counter, 1)] = (blockIdx.x * blockDim.z + threadIdx.z) * dim + threadIdx.y * blockDim.x + threadIdx.x;
}
__global__ void order_by_threads(int* counter, int* out) {
  const int dim = blockDim.x * blockDim.y;
  out[atomicAdd(counter, 1)] = (blockIdx.x * blockDim.z + threadIdx.z) * dim + threadIdx.y * blockDim.x + threadIdx.x;
  __syncthreads();
}
TEST void run_order(int* counter, int* out, int loops) {
  const dim3 block(5, 4, 3);
  if (loops) order<<<7, block>>>(counter, out);
  else order_by_threads<<<7, block>>>(counter, out);
}

__global__ void volume(int* out) {
  const dim3 size = blockDim;
  const uint3 at = threadIdx;
  const int thread = (at.z * size.y + at.y) * size.x + at.x;
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * size.x * size.y * size.z + thread] = block * 1000 + thread;
}
TEST void run_volume(int* out) { volume<<<dim3(2, 3, 4), dim3(3, 4, 5)>>>(out); }

__global__ void rows(const float* x, float* y, int height, int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  const int i = row * width + column;
  if (row < height && column < width) y[i] = 2.0f * x[i];
}
TEST void run_rows(const float* x, float* y, int height, int width) {
  const dim3 block(16, 8), grid((width + 15) / 16, (height + 7) / 8);
  rows<<<grid, block>>>(x, y, height, width);
}

__global__ void C10_LAUNCH_BOUNDS_2(1024, 1) stride(const float* x, float* y, int n) {
  for (int i = POSITION; i < n; i += gridDim.x * blockDim.x) y[i] = 2.0f * x[i];
}
TEST void run_stride(const float* x, float* y, int n) { stride<<<3, 64>>>(x, y, n); }

// threadIdx out of the kernel's sight.
__device__ int column() { return threadIdx.x; }
__device__ __noinline__ int own_position() { return blockIdx.x * blockDim.x + column(); }
struct Offset {
  int by;
  __device__ int operator()(int i) const { return i + by + static_cast<int>(threadIdx.y); }
};
template <typename T, typename Operation>
__global__ void called(T* out, Operation operation, int n) {
  const int i = own_position();
  if (i < n) out[i] = static_cast<T>(operation(i));
}
TEST void run_called(int* out, int n) { called<<<(n + 31) / 32, 32>>>(out, Offset{100}, n); }

__device__ void require(bool holds) {
  if (!holds) __trap();
}
__global__ void trapping(const int* values, int n) {
  const int i = threadIdx.y * blockDim.x + threadIdx.x;
  require(i >= n || values[i] > 0);
}
TEST int run_trapping(const int* values, int n) {
  trapping<<<1, dim3(16, 4)>>>(values, n);
  return cudaDeviceSynchronize();
}
__global__ void asserting(const int* values, int n) {
  const int i = POSITION;
  if (i < n) assert(values[i] > 0);
}
TEST int run_asserting(const int* values, int n) {
  asserting<<<2, 32>>>(values, n);
  return cudaDeviceSynchronize();
}

__global__ void speak() {
  if (threadIdx.x % 20 == 3) printf("thread %u\n", threadIdx.x);
}
TEST void run_speak() {
  speak<<<1, 32>>>();
  fflush(stdout);
}

__global__ void no_guard(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f; }
TEST void run_no_guard(int n, int threads) {
  float* x;
  cudaMalloc(&x, n * sizeof(float));
  no_guard<<<1, threads>>>(x);
  cudaFree(x);
}

// However a kernel is spelled and launched.
namespace spelled {
struct Kernels {
  template <int factor>
  static __global__ void __launch_bounds__(128) times(const int* __restrict__ x, int* __restrict__ y, int n) {
    const int blockDim = n;  // a name like any other in CUDA
    const auto product = [&](int i) { return factor * x[i]; };
    if (int(POSITION_OF(32)) < blockDim) y[POSITION_OF(32)] = product(POSITION_OF(32));
  }
};
}  // namespace spelled
TEST void run_spelled(const int* x, int* y, int n, int how) {
  const auto pointer = spelled::Kernels::times<2>;
  void* arguments[] = {&x, &y, &n};
  if (how == 0) spelled::Kernels::times<2><<<(n + 31) / 32, 32>>>(x, y, n);
  if (how == 1) pointer<<<(n + 31) / 32, 32>>>(x, y, n);
  if (how == 2) cudaLaunchKernel((void*)spelled::Kernels::times<2>, dim3((n + 31) / 32), dim3(32), arguments, 0, nullptr);
  if (how == 3) {
    cudaLaunchCooperativeKernel((void*)spelled::Kernels::times<2>, dim3((n + 31) / 32), dim3(32), arguments, 0, nullptr);
  }
}

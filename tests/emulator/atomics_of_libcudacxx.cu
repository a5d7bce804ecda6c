// libcu++'s atomics and references to them.
#include <cuda/atomic>

#include <cstdint>

#define TEST extern "C"
template <typename T>
using device_ref = cuda::atomic_ref<T, cuda::thread_scope_device>;

struct Pair {
  short first, second;
};

__device__ cuda::atomic<int, cuda::thread_scope_device> tickets{0};

// Each operation on each type, once a thread; `out` gets what is left.
__global__ void operations(long long* out, float* floats) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> sum, least, most, bits;
  __shared__ cuda::atomic<unsigned char, cuda::thread_scope_block> small;
  __shared__ cuda::atomic<const int*, cuda::thread_scope_block> place;
  __shared__ int numbers[64];
  const int i = static_cast<int>(threadIdx.x);
  if (i == 0) {
    sum = 5, least = 1000, most = -1000, bits = 0, small.store(250, cuda::std::memory_order_relaxed);
    place.store(numbers);
  }
  __syncthreads();
  sum += i;
  ++sum;
  sum.fetch_sub(2, cuda::memory_order_acq_rel);
  least.fetch_min(500 - i), most.fetch_max(i);
  bits.fetch_or(1 << i % 8), bits ^= 0;
  small++;
  place.fetch_add(1);
  device_ref<float>(floats[0]).fetch_add(0.5f, cuda::memory_order_relaxed);
  device_ref<double>(*reinterpret_cast<double*>(floats + 2)) -= 0.25;
  __syncthreads();
  if (i != 0) return;
  out[0] = sum, out[1] = least, out[2] = most, out[3] = bits, out[4] = small;
  out[5] = place.load() - numbers;
  out[6] = bits.exchange(9), out[7] = bits.load(cuda::memory_order_acquire);
  int expected = 8;
  out[8] = bits.compare_exchange_strong(expected, 7), out[9] = expected;
  out[10] = bits.compare_exchange_weak(expected, 7, cuda::memory_order_acq_rel, cuda::memory_order_relaxed), out[11] = bits;
  cuda::atomic<Pair, cuda::thread_scope_thread> pair{Pair{3, 4}};
  out[12] = pair.exchange(Pair{5, 6}).second, out[13] = pair.load().first;
  cuda::atomic<std::int8_t> narrow{127};
  out[14] = ++narrow, out[15] = narrow.is_lock_free();
}

// The last block adds what the blocks before it have published, as in a stream-K or a single-pass reduction.
__global__ void last_block(const int* x, int* partial, int* done, int* out, bool relaxed) {
  partial[blockIdx.x] = x[blockIdx.x] * 10;
  const auto order = relaxed ? cuda::memory_order_relaxed : cuda::memory_order_acq_rel;
  if (device_ref<int>(*done).fetch_add(1, order) != static_cast<int>(gridDim.x) - 1) return;
  for (unsigned i = 0; i < gridDim.x; ++i) *out += partial[i];
}

// Each block waits for the one before it, whichever begins first.
__global__ void chained(int* values, int* flags, bool fenced) {
  const unsigned block = static_cast<unsigned>(tickets++);
  if (block != 0) {
    device_ref<int> before(flags[block - 1]);
    if (fenced) {
      while (before.load(cuda::memory_order_relaxed) == 0) {}
      cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_device);
    } else {
      before.wait(0, cuda::memory_order_acquire);
    }
    values[block] = values[block - 1] + 1;
  }
  device_ref<int>(flags[block]).store(1, cuda::memory_order_release);
  device_ref<int>(flags[block]).notify_all();
  if (block == gridDim.x - 1) tickets = 0;
}

// A flag of the block's scope, which says nothing to other blocks.
__global__ void narrow_scope(int* value, int* flag) {
  cuda::atomic_ref<int, cuda::thread_scope_block> ready(*flag);
  if (blockIdx.x == 0) {
    *value = 7;
    ready.store(1, cuda::memory_order_release);
  } else if (ready.load(cuda::memory_order_acquire) == 1) {
    flag[1] = *value;
  }
}

TEST void run_operations(long long* out, float* floats) { operations<<<1, 64>>>(out, floats); }
TEST void run_last_block(const int* x, int* partial, int* done, int* out, int blocks, bool relaxed) {
  last_block<<<blocks, 1>>>(x, partial, done, out, relaxed);
}
TEST void run_chained(int* values, int* flags, int blocks, bool fenced) { chained<<<blocks, 1>>>(values, flags, fenced); }
TEST void run_narrow_scope(int* value, int* flag) { narrow_scope<<<2, 1>>>(value, flag); }
TEST int run_on_the_host() {
  cuda::atomic<int> one{3};
  one.fetch_add(4);
  return one.load();
}

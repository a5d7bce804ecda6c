// Stands in for CUB's types and operators, and holds what its algorithms share here.
#pragma once

#include <cstring>
#include <utility>

#include "../cuda/functional"
#include "../cuda_bf16.h"
#include "../cuda_fp16.h"
#include "../cuemu/lanes.h"
#include "../cuemu/line.h"
#include "../cuemu/ptx.h"
#include "config.cuh"

namespace cub {

struct NullType {};

template <int n>
struct PowerOfTwo {
  enum { VALUE = (n & (n - 1)) == 0 };
};
template <int n>
struct Log2 {  // rounded up
  static constexpr int VALUE = n <= 1 ? 0 : 1 + Log2<(n + 1) / 2>::VALUE;
};
template <>
struct Log2<1> {
  static constexpr int VALUE = 0;
};

// Room for a value that nobody constructs.
template <typename T>
struct Uninitialized {
  alignas(T) unsigned char storage[sizeof(T)];
  CUEMU_INLINE T& Alias() { return reinterpret_cast<T&>(*this); }
};

template <typename Key, typename Value>
struct KeyValuePair {
  using Key_t [[maybe_unused]] = Key;
  Key key;
  Value value;
};

// The operators that CUDA 12 has. CUDA 13 names them cuda::std::plus, cuda::maximum and cuda::minimum.
struct Sum : ::std::plus<> {};
struct Max : ::cuda::maximum<> {};
struct Min : ::cuda::minimum<> {};
struct Equality : ::std::equal_to<> {};
struct Inequality : ::std::not_equal_to<> {};
// Of two values the larger or the smaller, and of equal ones that with the smaller key.
struct ArgMax {
  template <typename Key, typename Value>
  KeyValuePair<Key, Value> operator()(const KeyValuePair<Key, Value>& a, const KeyValuePair<Key, Value>& b) const {
    return b.value > a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <typename Key, typename Value>
  KeyValuePair<Key, Value> operator()(const KeyValuePair<Key, Value>& a, const KeyValuePair<Key, Value>& b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};

template <typename T, typename U>
constexpr auto DivideAndRoundUp(T count, U divisor) {
  return (count + divisor - 1) / divisor;
}

namespace detail {

// Room for values that nobody has constructed, as shared variables have it.
template <typename T, int count>
struct Places {
  alignas(T) unsigned char bytes[sizeof(T) * count];
  CUEMU_INLINE T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

// The shared memory of an algorithm that was given none: one for each type.
template <typename Storage>
Storage& private_storage(::cuemu::Line line) {
  static const char key = 0;
  return *static_cast<Storage*>(
      ::cuemu::shared_bytes(&key, sizeof(Storage), alignof(Storage), "the storage of a CUB algorithm", line.number));
}

template <int x, int y, int z>
CUEMU_INLINE int linear_thread() {
  return static_cast<int>(threadIdx.x + (y == 1 ? 0 : threadIdx.y * x) + (z == 1 ? 0 : threadIdx.z * x * y));
}
CUEMU_INLINE int lane_of_warp() { return static_cast<int>(::cuemu::position_in(threadIdx, blockDim) % 32); }

// The value of another lane of the warp. All lanes of the mask take part.
template <typename T>
CUEMU_INLINE T from_lane(int source, const T& value, unsigned mask, ::cuemu::Line line) {
  static_assert(::std::is_trivially_copyable_v<T>, "a value that threads exchange is copied byte by byte");
  T received = value;
  for (::std::size_t done = 0; done < sizeof(T); done += 8) {
    const ::std::size_t bytes = sizeof(T) - done < 8 ? sizeof(T) - done : 8;
    ::std::uint64_t word = 0;
    __builtin_memcpy(&word, reinterpret_cast<const char*>(&value) + done, bytes);
    word = ::cuemu::warp_operation(::cuemu::WarpOp::shuffle, mask, word, source, 32, line.number);
    __builtin_memcpy(reinterpret_cast<char*>(&received) + done, &word, bytes);
  }
  return received;
}

// The lanes of a warp that act as a smaller one. There are several only if their size is a power of two.
template <int size>
struct LogicalWarp {
  static_assert(size >= 1 && size <= 32, "a logical warp has 1 to 32 threads");
  static constexpr bool kIsOneOfSeveral = (size & (size - 1)) == 0;
  int first = kIsOneOfSeveral ? lane_of_warp() / size * size : 0;
  int lane = lane_of_warp() - first;
  unsigned mask = (size == 32 ? ~0u : (1u << size) - 1) << first;

  // The value of another lane. All lanes of the logical warp take part.
  template <typename T>
  CUEMU_INLINE T from(int source, const T& value, ::cuemu::Line line) const {
    return from_lane(first + source, value, mask, line);
  }
};

template <typename T, typename Op>
constexpr bool kReducesAsTree =
    sizeof(T) < 8 && (::std::is_same_v<Op, ::std::plus<>> || ::std::is_same_v<Op, ::std::plus<T>> ||
                      ::std::is_same_v<Op, ::std::multiplies<>> || ::std::is_same_v<Op, ::std::multiplies<T>> ||
                      ::std::is_same_v<Op, Sum>);
// A thread's items in the order of CUDA 13: sums and products of up to 4 bytes as a tree, others one after the other.
template <typename T, int count, typename Op>
CUEMU_INLINE T reduce_items(const T (&items)[count], Op op) {
  T partial[count];
  for (int i = 0; i < count; ++i) partial[i] = items[i];
  if constexpr (kReducesAsTree<T, Op>) {
    for (int step = 1; step < count; step *= 2) {
      for (int i = 0; i + step < count; i += 2 * step) partial[i] = op(partial[i], partial[i + step]);
    }
  } else {
    for (int i = 1; i < count; ++i) partial[0] = op(partial[0], partial[i]);
  }
  return partial[0];
}

// Prefixes of a thread's items, behind a prefix of the threads before if there is one. Input and output may be the same.
template <bool is_inclusive, typename T, typename Op>
CUEMU_INLINE void scan_items(const T* items, T* results, int count, Op op, T prefix, bool has_prefix) {
  T running = has_prefix ? op(prefix, items[0]) : items[0];
  results[0] = is_inclusive ? running : prefix;
  for (int i = 1; i < count; ++i) {
    const T before = running;
    running = op(running, items[i]);
    results[i] = is_inclusive ? running : before;
  }
}

}  // namespace detail

template <typename T, int count, typename Op>
CUEMU_INLINE T ThreadReduce(const T (&items)[count], Op op) {
  return detail::reduce_items(items, op);
}

}  // namespace cub

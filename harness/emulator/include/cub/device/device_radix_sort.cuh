// Stands in for CUB's stable sort of the whole device by some of the keys' bits.
#pragma once

#include "../block/block_radix_sort.cuh"
#include "device_call.cuh"

namespace cub {

namespace detail {

template <typename Key>
struct FewerBits {
  int first, end;
  bool is_descending;
  CUEMU_INLINE BitsOf<Key> bits(const Key& key) const {
    constexpr int all = 8 * sizeof(Key);
    const int count = end - first;
    const BitsOf<Key> shifted = count <= 0 ? 0 : static_cast<BitsOf<Key>>(ordered_bits(key) >> first);
    return count >= all ? shifted : static_cast<BitsOf<Key>>(shifted & ((BitsOf<Key>{1} << (count < 0 ? 0 : count)) - 1));
  }
  CUEMU_INLINE bool operator()(const Key& a, const Key& b) const { return is_descending ? bits(b) < bits(a) : bits(a) < bits(b); }
};

// Sorts from one array into another. The segments are whole arrays of their own.
template <typename Key, typename Value, typename Begins, typename Ends>
cudaError_t sort(const char* name, void* storage, ::std::size_t& bytes, const Key* in, Key* out, const Value* values,
                 Value* sorted_values, ::std::ptrdiff_t count, ::std::ptrdiff_t segments, Begins begins, Ends ends,
                 FewerBits<Key> less) {
  constexpr bool has_values = !::std::is_same_v<Value, NullType>;
  const ::std::size_t keys_bytes = (count * sizeof(Key) + 255) / 256 * 256;
  const auto sorted = [=] {
    Key* const other = static_cast<Key*>(storage);
    Value* const other_values = reinterpret_cast<Value*>(static_cast<char*>(storage) + keys_bytes);
    for (::std::ptrdiff_t i = 0; i < segments; ++i) {
      const ::std::ptrdiff_t begin = begins(i), size = ends(i) - begin;
      for (::std::ptrdiff_t j = begin; j < begin + size; ++j) {
        out[j] = in[j];
        if constexpr (has_values) sorted_values[j] = values[j];
      }
      if constexpr (has_values) whole::sort(out + begin, sorted_values + begin, size, other, other_values, less);
      else whole::sort(out + begin, whole::Nothing{}, size, other, whole::Nothing{}, less);
    }
  };
  return call(name, storage, bytes, sorted, keys_bytes + (has_values ? count * sizeof(Value) : 0) + 1);
}

struct Whole {
  ::std::ptrdiff_t place;
  CUEMU_INLINE ::std::ptrdiff_t operator()(::std::ptrdiff_t) const { return place; }
};
template <typename Offsets>
struct Each {
  Offsets offsets;
  CUEMU_INLINE ::std::ptrdiff_t operator()(::std::ptrdiff_t i) const { return offsets[i]; }
};

// The four functions of a sort: keys or pairs, upwards or downwards, between arrays or within a DoubleBuffer.
#define CUEMU_SORTS(parameters, arguments, Suffix, descends)                                                                  \
  template <typename Key CUEMU_MORE_TYPES>                                                                                    \
  static cudaError_t SortKeys##Suffix(void* storage, ::std::size_t& bytes, const Key* in, Key* out, parameters, int first = 0, \
                                      int end = sizeof(Key) * 8, cudaStream_t = nullptr, bool = false) {                      \
    return detail::sort<Key, NullType>(kName, storage, bytes, in, out, nullptr, nullptr, arguments, {first, end, descends});  \
  }                                                                                                                           \
  template <typename Key CUEMU_MORE_TYPES>                                                                                    \
  static cudaError_t SortKeys##Suffix(void* storage, ::std::size_t& bytes, DoubleBuffer<Key>& keys, parameters, int first = 0, \
                                      int end = sizeof(Key) * 8, cudaStream_t = nullptr, bool = false) {                      \
    const bool is_question = storage == nullptr;                                                                              \
    const cudaError_t error = detail::sort<Key, NullType>(kName, storage, bytes, keys.Current(), keys.Alternate(), nullptr,   \
                                                          nullptr, arguments, {first, end, descends});                        \
    if (!is_question && !error) keys.selector ^= 1;                                                                           \
    return error;                                                                                                             \
  }                                                                                                                           \
  template <typename Key, typename Value CUEMU_MORE_TYPES>                                                                    \
  static cudaError_t SortPairs##Suffix(void* storage, ::std::size_t& bytes, const Key* in, Key* out, const Value* values,     \
                                       Value* sorted_values, parameters, int first = 0, int end = sizeof(Key) * 8,            \
                                       cudaStream_t = nullptr, bool = false) {                                                \
    return detail::sort(kName, storage, bytes, in, out, values, sorted_values, arguments,                                     \
                        detail::FewerBits<Key>{first, end, descends});                                                        \
  }                                                                                                                           \
  template <typename Key, typename Value CUEMU_MORE_TYPES>                                                                    \
  static cudaError_t SortPairs##Suffix(void* storage, ::std::size_t& bytes, DoubleBuffer<Key>& keys,                          \
                                       DoubleBuffer<Value>& values, parameters, int first = 0, int end = sizeof(Key) * 8,     \
                                       cudaStream_t = nullptr, bool = false) {                                                \
    const bool is_question = storage == nullptr;                                                                              \
    const cudaError_t error = detail::sort<Key, Value>(kName, storage, bytes, keys.Current(), keys.Alternate(),               \
                                                       values.Current(), values.Alternate(), arguments,                       \
                                                       {first, end, descends});                                               \
    if (!is_question && !error) keys.selector ^= 1, values.selector ^= 1;                                                     \
    return error;                                                                                                             \
  }
#define CUEMU_COMMA ,

}  // namespace detail

struct DeviceRadixSort {
#define CUEMU_MORE_TYPES
#define CUEMU_WHOLE_ARGUMENTS count CUEMU_COMMA 1 CUEMU_COMMA detail::Whole{0} CUEMU_COMMA detail::Whole{count}
  CUEMU_SORTS(::std::ptrdiff_t count, CUEMU_WHOLE_ARGUMENTS, , false)
  CUEMU_SORTS(::std::ptrdiff_t count, CUEMU_WHOLE_ARGUMENTS, Descending, true)
#undef CUEMU_WHOLE_ARGUMENTS
#undef CUEMU_MORE_TYPES

 private:
  static constexpr const char* kName = "DeviceRadixSortKernel";
};

}  // namespace cub

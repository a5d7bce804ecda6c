// Stands in for CUB's sort of segments of very different sizes: the other sort of segments, which is stable.
#pragma once

#include "device_segmented_radix_sort.cuh"

namespace cub {

struct DeviceSegmentedSort {
#define CUEMU_SEGMENTED(Keys, keys_sort, Pairs, pairs_sort)                                                                      \
  template <typename Key, typename Begins, typename Ends>                                                                        \
  static cudaError_t Keys(void* storage, ::std::size_t& bytes, const Key* in, Key* out, ::std::ptrdiff_t count,                  \
                          ::std::ptrdiff_t segments, Begins begins, Ends ends, cudaStream_t = nullptr, bool = false) {           \
    return DeviceSegmentedRadixSort::keys_sort(storage, bytes, in, out, count, segments, begins, ends);                          \
  }                                                                                                                              \
  template <typename Key, typename Begins, typename Ends>                                                                        \
  static cudaError_t Keys(void* storage, ::std::size_t& bytes, DoubleBuffer<Key>& keys, ::std::ptrdiff_t count,                  \
                          ::std::ptrdiff_t segments, Begins begins, Ends ends, cudaStream_t = nullptr, bool = false) {           \
    return DeviceSegmentedRadixSort::keys_sort(storage, bytes, keys, count, segments, begins, ends);                             \
  }                                                                                                                              \
  template <typename Key, typename Value, typename Begins, typename Ends>                                                        \
  static cudaError_t Pairs(void* storage, ::std::size_t& bytes, const Key* in, Key* out, const Value* values, Value* sorted,     \
                           ::std::ptrdiff_t count, ::std::ptrdiff_t segments, Begins begins, Ends ends, cudaStream_t = nullptr,  \
                           bool = false) {                                                                                       \
    return DeviceSegmentedRadixSort::pairs_sort(storage, bytes, in, out, values, sorted, count, segments, begins, ends);         \
  }                                                                                                                              \
  template <typename Key, typename Value, typename Begins, typename Ends>                                                        \
  static cudaError_t Pairs(void* storage, ::std::size_t& bytes, DoubleBuffer<Key>& keys, DoubleBuffer<Value>& values,            \
                           ::std::ptrdiff_t count, ::std::ptrdiff_t segments, Begins begins, Ends ends, cudaStream_t = nullptr,  \
                           bool = false) {                                                                                       \
    return DeviceSegmentedRadixSort::pairs_sort(storage, bytes, keys, values, count, segments, begins, ends);                    \
  }
  CUEMU_SEGMENTED(SortKeys, SortKeys, SortPairs, SortPairs)
  CUEMU_SEGMENTED(SortKeysDescending, SortKeysDescending, SortPairsDescending, SortPairsDescending)
  CUEMU_SEGMENTED(StableSortKeys, SortKeys, StableSortPairs, SortPairs)
  CUEMU_SEGMENTED(StableSortKeysDescending, SortKeysDescending, StableSortPairsDescending, SortPairsDescending)
#undef CUEMU_SEGMENTED
};

}  // namespace cub

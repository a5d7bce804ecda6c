// Stands in for CUB's stable sort of the whole device by a comparison.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceMergeSort {
  template <typename Keys, typename Less>
  static cudaError_t SortKeys(void* storage, ::std::size_t& bytes, Keys keys, ::std::ptrdiff_t count, Less less,
                              cudaStream_t = nullptr, bool = false) {
    return sort(storage, bytes, keys, detail::whole::Nothing{}, count, less);
  }
  template <typename Keys, typename Less>
  static cudaError_t StableSortKeys(void* storage, ::std::size_t& bytes, Keys keys, ::std::ptrdiff_t count, Less less,
                                    cudaStream_t = nullptr, bool = false) {
    return SortKeys(storage, bytes, keys, count, less);
  }
  template <typename Keys, typename Values, typename Less>
  static cudaError_t SortPairs(void* storage, ::std::size_t& bytes, Keys keys, Values values, ::std::ptrdiff_t count,
                               Less less, cudaStream_t = nullptr, bool = false) {
    return sort(storage, bytes, keys, values, count, less);
  }
  template <typename Keys, typename Values, typename Less>
  static cudaError_t StableSortPairs(void* storage, ::std::size_t& bytes, Keys keys, Values values, ::std::ptrdiff_t count,
                                     Less less, cudaStream_t = nullptr, bool = false) {
    return SortPairs(storage, bytes, keys, values, count, less);
  }

 private:
  template <typename Keys, typename Values, typename Less>
  static cudaError_t sort(void* storage, ::std::size_t& bytes, Keys keys, Values values, ::std::ptrdiff_t count, Less less) {
    using Key = detail::ValueOf<Keys>;
    const ::std::size_t keys_bytes = (count * sizeof(Key) + 255) / 256 * 256;
    if constexpr (::std::is_same_v<Values, detail::whole::Nothing>) {
      return detail::call("DeviceMergeSortKernel", storage, bytes, [=] {
        detail::whole::sort(keys, values, count, static_cast<Key*>(storage), values, less);
      }, keys_bytes + 1);
    } else {
      using Value = detail::ValueOf<Values>;
      return detail::call("DeviceMergeSortKernel", storage, bytes, [=] {
        Value* const other = reinterpret_cast<Value*>(static_cast<char*>(storage) + keys_bytes);
        detail::whole::sort(keys, values, count, static_cast<Key*>(storage), other, less);
      }, keys_bytes + count * sizeof(Value) + 1);
    }
  }
};

}  // namespace cub

// Stands in for CUB's selections of the whole device.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceSelect {
  template <typename In, typename Flags, typename Out, typename Count>
  static cudaError_t Flagged(void* storage, ::std::size_t& bytes, In in, Flags flags, Out out, Count selected,
                             ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    return select(storage, bytes, in, out, selected, count, [=](::std::ptrdiff_t i) { return static_cast<bool>(flags[i]); });
  }
  template <typename In, typename Out, typename Count, typename Predicate>
  static cudaError_t If(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                        Predicate predicate, cudaStream_t = nullptr, bool = false) {
    return select(storage, bytes, in, out, selected, count, [=](::std::ptrdiff_t i) mutable { return static_cast<bool>(predicate(in[i])); });
  }
  template <typename In, typename Out, typename Count>
  static cudaError_t Unique(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                            cudaStream_t = nullptr, bool = false) {
    return select(storage, bytes, in, out, selected, count, [=](::std::ptrdiff_t i) { return i == 0 || !(in[i] == in[i - 1]); });
  }
  template <typename Keys, typename Values, typename OutKeys, typename OutValues, typename Count>
  static cudaError_t UniqueByKey(void* storage, ::std::size_t& bytes, Keys keys, Values values, OutKeys unique, OutValues out,
                                 Count selected, ::std::ptrdiff_t count, cudaStream_t stream = nullptr) {
    return UniqueByKey(storage, bytes, keys, values, unique, out, selected, count, ::std::equal_to<>(), stream);
  }
  template <typename Keys, typename Values, typename OutKeys, typename OutValues, typename Count, typename Equal>
    requires(!::std::is_convertible_v<Equal, cudaStream_t>)
  static cudaError_t UniqueByKey(void* storage, ::std::size_t& bytes, Keys keys, Values values, OutKeys unique, OutValues out,
                                 Count selected, ::std::ptrdiff_t count, Equal equal, cudaStream_t = nullptr) {
    return detail::call("DeviceUniqueByKeyKernel", storage, bytes, [=] {
      ::std::ptrdiff_t found = 0;
      for (::std::ptrdiff_t begin = 0; begin < count; begin = detail::whole::end_of_run(keys, begin, count, equal)) {
        unique[found] = keys[begin];
        out[found++] = values[begin];
      }
      *selected = static_cast<::std::remove_reference_t<decltype(*selected)>>(found);
    });
  }

 private:
  template <typename In, typename Out, typename Count, typename Chosen>
  static cudaError_t select(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                            Chosen chosen) {
    return detail::call("DeviceSelectKernel", storage, bytes, [=]() mutable {
      ::std::ptrdiff_t found = 0;
      for (::std::ptrdiff_t i = 0; i < count; ++i) {
        if (chosen(i)) out[found++] = in[i];
      }
      *selected = static_cast<::std::remove_reference_t<decltype(*selected)>>(found);
    });
  }
};

}  // namespace cub

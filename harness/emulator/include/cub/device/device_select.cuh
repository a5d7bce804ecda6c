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
    return select(storage, bytes, in, out, selected, count, [=](::std::ptrdiff_t i) { return static_cast<bool>(predicate(in[i])); });
  }
  template <typename In, typename Out, typename Count>
  static cudaError_t Unique(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                            cudaStream_t = nullptr, bool = false) {
    return select(storage, bytes, in, out, selected, count, [=](::std::ptrdiff_t i) { return i == 0 || !(in[i] == in[i - 1]); });
  }

 private:
  template <typename In, typename Out, typename Count, typename Chosen>
  static cudaError_t select(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                            Chosen chosen) {
    return detail::call("DeviceSelectKernel", storage, bytes, [=] {
      ::std::ptrdiff_t found = 0;
      for (::std::ptrdiff_t i = 0; i < count; ++i) {
        if (chosen(i)) out[found++] = in[i];
      }
      *selected = static_cast<::std::remove_reference_t<decltype(*selected)>>(found);
    });
  }
};

}  // namespace cub

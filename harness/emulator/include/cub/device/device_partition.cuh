// Stands in for CUB's partitions of the whole device: what is selected comes first, and the rest last in reverse order.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DevicePartition {
  template <typename In, typename Flags, typename Out, typename Count>
  static cudaError_t Flagged(void* storage, ::std::size_t& bytes, In in, Flags flags, Out out, Count selected,
                             ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    return part(storage, bytes, in, out, selected, count, [=](::std::ptrdiff_t i) { return static_cast<bool>(flags[i]); });
  }
  template <typename In, typename Out, typename Count, typename Predicate>
  static cudaError_t If(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                        Predicate predicate, cudaStream_t = nullptr, bool = false) {
    return part(storage, bytes, in, out, selected, count,
                [=](::std::ptrdiff_t i) mutable { return static_cast<bool>(predicate(in[i])); });
  }

 private:
  template <typename In, typename Out, typename Count, typename Chosen>
  static cudaError_t part(void* storage, ::std::size_t& bytes, In in, Out out, Count selected, ::std::ptrdiff_t count,
                          Chosen chosen) {
    return detail::call("DevicePartitionKernel", storage, bytes, [=]() mutable {
      ::std::ptrdiff_t found = 0, rest = count;
      for (::std::ptrdiff_t i = 0; i < count; ++i) out[chosen(i) ? found++ : --rest] = in[i];
      *selected = static_cast<::std::remove_reference_t<decltype(*selected)>>(found);
    });
  }
};

}  // namespace cub

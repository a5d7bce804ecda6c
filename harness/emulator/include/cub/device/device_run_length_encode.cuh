// Stands in for CUB's run-length encoding of the whole device.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceRunLengthEncode {
  template <typename In, typename Unique, typename Lengths, typename Count>
  static cudaError_t Encode(void* storage, ::std::size_t& bytes, In in, Unique unique, Lengths lengths, Count runs,
                            ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    return each_run(storage, bytes, in, runs, count, 1, [=](::std::ptrdiff_t found, ::std::ptrdiff_t begin, ::std::ptrdiff_t length) {
      unique[found] = in[begin];
      lengths[found] = static_cast<::std::remove_reference_t<decltype(lengths[found])>>(length);
    });
  }
  template <typename In, typename Offsets, typename Lengths, typename Count>
  static cudaError_t NonTrivialRuns(void* storage, ::std::size_t& bytes, In in, Offsets offsets, Lengths lengths, Count runs,
                                    ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    return each_run(storage, bytes, in, runs, count, 2, [=](::std::ptrdiff_t found, ::std::ptrdiff_t begin, ::std::ptrdiff_t length) {
      offsets[found] = static_cast<::std::remove_reference_t<decltype(offsets[found])>>(begin);
      lengths[found] = static_cast<::std::remove_reference_t<decltype(lengths[found])>>(length);
    });
  }

 private:
  template <typename In, typename Count, typename Write>
  static cudaError_t each_run(void* storage, ::std::size_t& bytes, In in, Count runs, ::std::ptrdiff_t count,
                              ::std::ptrdiff_t shortest, Write write) {
    return detail::call("DeviceRunLengthEncodeKernel", storage, bytes, [=] {
      ::std::ptrdiff_t found = 0;
      for (::std::ptrdiff_t begin = 0, end; begin < count; begin = end) {
        end = detail::whole::end_of_run(in, begin, count, ::std::equal_to<>());
        if (end - begin >= shortest) write(found++, begin, end - begin);
      }
      *runs = static_cast<::std::remove_reference_t<decltype(*runs)>>(found);
    });
  }
};

}  // namespace cub

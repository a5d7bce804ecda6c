// Stands in for CUB's prefix sums of the whole device.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceScan {
  template <typename In, typename Out>
  static cudaError_t ExclusiveSum(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                                  cudaStream_t = nullptr, bool = false) {
    return ExclusiveScan(storage, bytes, in, out, ::cub::Sum(), detail::ValueOf<In>{}, count);
  }
  template <typename In>
  static cudaError_t ExclusiveSum(void* storage, ::std::size_t& bytes, In data, ::std::ptrdiff_t count,
                                  cudaStream_t = nullptr, bool = false) {
    return ExclusiveSum(storage, bytes, data, data, count);
  }
  template <typename In, typename Out, typename Op, typename T>
  static cudaError_t ExclusiveScan(void* storage, ::std::size_t& bytes, In in, Out out, Op op, T init,
                                   ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    return detail::call("DeviceScanKernel", storage, bytes,
                        [=] { detail::whole::scan<false, T>(in, count, out, init, true, op); });
  }
  template <typename In, typename Out>
  static cudaError_t InclusiveSum(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                                  cudaStream_t = nullptr, bool = false) {
    return InclusiveScan(storage, bytes, in, out, ::cub::Sum(), count);
  }
  template <typename In>
  static cudaError_t InclusiveSum(void* storage, ::std::size_t& bytes, In data, ::std::ptrdiff_t count,
                                  cudaStream_t = nullptr, bool = false) {
    return InclusiveSum(storage, bytes, data, data, count);
  }
  template <typename In, typename Out, typename Op>
  static cudaError_t InclusiveScan(void* storage, ::std::size_t& bytes, In in, Out out, Op op, ::std::ptrdiff_t count,
                                   cudaStream_t = nullptr, bool = false) {
    using T = detail::ValueOf<In>;
    return detail::call("DeviceScanKernel", storage, bytes,
                        [=] { detail::whole::scan<true, T>(in, count, out, T{}, false, op); });
  }
  template <typename In, typename Out, typename Op, typename T>
  static cudaError_t InclusiveScanInit(void* storage, ::std::size_t& bytes, In in, Out out, Op op, T init,
                                       ::std::ptrdiff_t count, cudaStream_t = nullptr) {
    return detail::call("DeviceScanKernel", storage, bytes,
                        [=] { detail::whole::scan<true, T>(in, count, out, init, true, op); });
  }
};

}  // namespace cub

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
                        [=] { detail::whole::scan<false>(in, count, out, init, true, op); });
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
                        [=] { detail::whole::scan<true>(in, count, out, T{}, false, op); });
  }
  template <typename In, typename Out, typename Op, typename T>
  static cudaError_t InclusiveScanInit(void* storage, ::std::size_t& bytes, In in, Out out, Op op, T init,
                                       ::std::ptrdiff_t count, cudaStream_t = nullptr) {
    return detail::call("DeviceScanKernel", storage, bytes,
                        [=] { detail::whole::scan<true>(in, count, out, init, true, op); });
  }
  template <typename Keys, typename In, typename Out, typename Equal = ::std::equal_to<>>
  static cudaError_t ExclusiveSumByKey(void* storage, ::std::size_t& bytes, Keys keys, In in, Out out, ::std::ptrdiff_t count,
                                       Equal equal = Equal(), cudaStream_t = nullptr) {
    return ExclusiveScanByKey(storage, bytes, keys, in, out, ::cub::Sum(), detail::ValueOf<In>{}, count, equal);
  }
  template <typename Keys, typename In, typename Out, typename Op, typename T, typename Equal = ::std::equal_to<>>
  static cudaError_t ExclusiveScanByKey(void* storage, ::std::size_t& bytes, Keys keys, In in, Out out, Op op, T init,
                                        ::std::ptrdiff_t count, Equal equal = Equal(), cudaStream_t = nullptr) {
    return detail::call("DeviceScanByKeyKernel", storage, bytes,
                        [=] { detail::whole::scan_runs<false>(keys, in, count, out, init, true, equal, op); });
  }
  template <typename Keys, typename In, typename Out, typename Equal = ::std::equal_to<>>
  static cudaError_t InclusiveSumByKey(void* storage, ::std::size_t& bytes, Keys keys, In in, Out out, ::std::ptrdiff_t count,
                                       Equal equal = Equal(), cudaStream_t = nullptr) {
    return InclusiveScanByKey(storage, bytes, keys, in, out, ::cub::Sum(), count, equal);
  }
  template <typename Keys, typename In, typename Out, typename Op, typename Equal = ::std::equal_to<>>
  static cudaError_t InclusiveScanByKey(void* storage, ::std::size_t& bytes, Keys keys, In in, Out out, Op op,
                                        ::std::ptrdiff_t count, Equal equal = Equal(), cudaStream_t = nullptr) {
    using T = detail::ValueOf<In>;
    return detail::call("DeviceScanByKeyKernel", storage, bytes,
                        [=] { detail::whole::scan_runs<true>(keys, in, count, out, T{}, false, equal, op); });
  }
};

}  // namespace cub

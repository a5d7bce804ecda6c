// Stands in for CUB's reductions of segments.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceSegmentedReduce {
  template <typename In, typename Out, typename Begins, typename Ends, typename Op, typename T>
  static cudaError_t Reduce(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t segments, Begins begins,
                            Ends ends, Op op, T init, cudaStream_t = nullptr, bool = false) {
    return detail::call("DeviceSegmentedReduceKernel", storage, bytes, [=] {
      for (::std::ptrdiff_t i = 0; i < segments; ++i) {
        const ::std::ptrdiff_t begin = begins[i], end = ends[i];
        out[i] = detail::whole::reduce(in + begin, end > begin ? end - begin : 0, init, op);
      }
    });
  }
  template <typename In, typename Out, typename Begins, typename Ends>
  static cudaError_t Sum(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t segments, Begins begins,
                         Ends ends, cudaStream_t = nullptr, bool = false) {
    return Reduce(storage, bytes, in, out, segments, begins, ends, ::cub::Sum(), detail::SumFrom<In, Out>{});
  }
  template <typename In, typename Out, typename Begins, typename Ends>
  static cudaError_t Min(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t segments, Begins begins,
                         Ends ends, cudaStream_t = nullptr, bool = false) {
    return Reduce(storage, bytes, in, out, segments, begins, ends, ::cub::Min(), detail::largest<detail::ValueOf<In>>());
  }
  template <typename In, typename Out, typename Begins, typename Ends>
  static cudaError_t Max(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t segments, Begins begins,
                         Ends ends, cudaStream_t = nullptr, bool = false) {
    return Reduce(storage, bytes, in, out, segments, begins, ends, ::cub::Max(), detail::lowest<detail::ValueOf<In>>());
  }
};

}  // namespace cub

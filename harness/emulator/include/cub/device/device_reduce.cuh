// Stands in for CUB's reductions of the whole device.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceReduce {
  template <typename In, typename Out, typename Op, typename T>
  static cudaError_t Reduce(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count, Op op, T init,
                            cudaStream_t = nullptr, bool = false) {
    return detail::call("DeviceReduceKernel", storage, bytes,
                        [=] { *out = detail::whole::reduce(in, count, init, op); });
  }
  template <typename In, typename Out>
  static cudaError_t Sum(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                         cudaStream_t = nullptr, bool = false) {
    return Reduce(storage, bytes, in, out, count, ::cub::Sum(), detail::SumFrom<In, Out>{});
  }
  template <typename In, typename Out>
  static cudaError_t Min(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                         cudaStream_t = nullptr, bool = false) {
    return Reduce(storage, bytes, in, out, count, ::cub::Min(), detail::largest<detail::ValueOf<In>>());
  }
  template <typename In, typename Out>
  static cudaError_t Max(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                         cudaStream_t = nullptr, bool = false) {
    return Reduce(storage, bytes, in, out, count, ::cub::Max(), detail::lowest<detail::ValueOf<In>>());
  }
  template <typename In, typename Out>
  static cudaError_t ArgMin(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                            cudaStream_t = nullptr, bool = false) {
    return arg(storage, bytes, in, out, count, [](const auto& a, const auto& b) { return a < b; },
               detail::largest<detail::ValueOf<In>>());
  }
  template <typename In, typename Out>
  static cudaError_t ArgMax(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count,
                            cudaStream_t = nullptr, bool = false) {
    return arg(storage, bytes, in, out, count, [](const auto& a, const auto& b) { return b < a; },
               detail::lowest<detail::ValueOf<In>>());
  }
  template <typename In, typename Out, typename Op, typename Transform, typename T>
  static cudaError_t TransformReduce(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count, Op op,
                                     Transform transform, T init, cudaStream_t = nullptr) {
    return detail::call("DeviceReduceKernel", storage, bytes, [=] {
      using Sum = ::std::decay_t<decltype(op(init, transform(in[0])))>;
      Sum sum = static_cast<Sum>(init);
      for (::std::ptrdiff_t i = 0; i < count; i += detail::whole::kTile) {
        Sum own = static_cast<Sum>(transform(in[i]));
        for (::std::ptrdiff_t j = i + 1; j < count && j < i + detail::whole::kTile; ++j) own = op(own, transform(in[j]));
        sum = op(sum, own);
      }
      *out = sum;
    });
  }
  template <typename Keys, typename Unique, typename In, typename Out, typename Count, typename Op>
  static cudaError_t ReduceByKey(void* storage, ::std::size_t& bytes, Keys keys, Unique unique, In in, Out out,
                                 Count runs, Op op, ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    using T = detail::whole::SumOf<Op, detail::ValueOf<In>, detail::ValueOf<In>>;
    return detail::call("DeviceReduceByKeyKernel", storage, bytes, [=] {
      ::std::ptrdiff_t found = 0;
      for (::std::ptrdiff_t begin = 0, end; begin < count; begin = end) {
        end = detail::whole::end_of_run(keys, begin, count, ::std::equal_to<>());
        unique[found] = keys[begin];
        out[found++] = detail::whole::tree<T>(in + begin, end - begin, op);
      }
      *runs = static_cast<::std::remove_reference_t<decltype(*runs)>>(found);
    });
  }

 private:
  template <typename In, typename Out, typename Before, typename T>
  static cudaError_t arg(void* storage, ::std::size_t& bytes, In in, Out out, ::std::ptrdiff_t count, Before before, T none) {
    return detail::call("DeviceReduceKernel", storage, bytes, [=] {
      KeyValuePair<int, T> best{1, none};  // what CUB gives for no items
      for (::std::ptrdiff_t i = 0; i < count; ++i) {
        if (i == 0 || before(in[i], best.value)) best = {static_cast<int>(i), in[i]};
      }
      *out = best;
    });
  }
};

}  // namespace cub

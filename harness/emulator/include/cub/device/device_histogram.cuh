// Stands in for CUB's histograms of the whole device, of one channel in one row.
#pragma once

#include "device_call.cuh"

namespace cub {

struct DeviceHistogram {
  // Bins of equal width. Integers have no rounding, and floats the rounding of CUB.
  template <typename In, typename Counter, typename Level>
  static cudaError_t HistogramEven(void* storage, ::std::size_t& bytes, In in, Counter* out, int levels, Level lower, Level upper,
                                   ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    using T = ::std::common_type_t<Level, detail::ValueOf<In>>;
    using Product = ::std::conditional_t<sizeof(detail::ValueOf<In>) + sizeof(T) <= 4, ::std::uint32_t, ::std::uint64_t>;
    const T low = static_cast<T>(lower), high = static_cast<T>(upper);
    const int bins = levels - 1;
    if constexpr (::std::is_integral_v<T>) {
      if (static_cast<Product>(high - low) > ::std::numeric_limits<Product>::max() / static_cast<Product>(bins)) {
        return cudaErrorInvalidValue;
      }
    }
    return counted(storage, bytes, in, out, bins, count, [=](const auto& sample) {
      const T x = static_cast<T>(sample);
      if (!(x >= low && x < high)) return -1;
      if constexpr (::std::is_integral_v<T>) {
        return static_cast<int>(static_cast<Product>(x - low) * static_cast<Product>(bins) / static_cast<Product>(high - low));
      } else {
        return static_cast<int>((x - low) * static_cast<T>(static_cast<T>(bins) / static_cast<T>(high - low)));
      }
    });
  }
  template <typename In, typename Counter, typename Level>
  static cudaError_t HistogramRange(void* storage, ::std::size_t& bytes, In in, Counter* out, int levels, const Level* bounds,
                                    ::std::ptrdiff_t count, cudaStream_t = nullptr, bool = false) {
    using T = ::std::common_type_t<Level, detail::ValueOf<In>>;
    return counted(storage, bytes, in, out, levels - 1, count, [=](const auto& sample) {
      int low = 0, high = levels;  // of the levels up to the sample
      while (low < high) {
        const int middle = low + (high - low) / 2;
        if (static_cast<T>(sample) < static_cast<T>(bounds[middle])) high = middle;
        else low = middle + 1;
      }
      return low - 1;
    });
  }

 private:
  template <typename In, typename Counter, typename BinOf>
  static cudaError_t counted(void* storage, ::std::size_t& bytes, In in, Counter* out, int bins, ::std::ptrdiff_t count,
                             BinOf bin_of) {
    return detail::call("DeviceHistogramKernel", storage, bytes, [=] {
      for (int i = 0; i < bins; ++i) out[i] = 0;
      for (::std::ptrdiff_t i = 0; i < count; ++i) {
        const int bin = bin_of(in[i]);
        if (bin >= 0 && bin < bins) out[bin] = out[bin] + 1;
      }
    });
  }
};

}  // namespace cub

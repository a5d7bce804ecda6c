// Thrust's searches in sorted ranges: for one value, and for each value of a range.
#pragma once

#include "calls.h"

namespace thrust {

namespace detail {

struct Searches {
  template <typename In, typename T, typename Less = std::less<>>
  static At<0> lower_bound(Where where, In first, In last, const T& x, Less less = Less()) {
    return {result_of(where, kName, [=]() mutable { return bound<false>(first, last - first, x, less); })};
  }
  template <typename In, typename Queries, typename Out, typename Less = std::less<>>
  static At<4> lower_bound(Where where, In first, In last, Queries queries, Queries end, Out out, Less less = Less()) {
    return each(where, queries, end, out, [=](const auto& x) mutable { return bound<false>(first, last - first, x, less); });
  }
  template <typename In, typename T, typename Less = std::less<>>
  static At<0> upper_bound(Where where, In first, In last, const T& x, Less less = Less()) {
    return {result_of(where, kName, [=]() mutable { return bound<true>(first, last - first, x, less); })};
  }
  template <typename In, typename Queries, typename Out, typename Less = std::less<>>
  static At<4> upper_bound(Where where, In first, In last, Queries queries, Queries end, Out out, Less less = Less()) {
    return each(where, queries, end, out, [=](const auto& x) mutable { return bound<true>(first, last - first, x, less); });
  }
  template <typename In, typename T, typename Less = std::less<>>
  static bool binary_search(Where where, In first, In last, const T& x, Less less = Less()) {
    return result_of(where, kName, [=]() mutable { return has(first, last - first, x, less); });
  }
  template <typename In, typename Queries, typename Out, typename Less = std::less<>>
  static At<4> binary_search(Where where, In first, In last, Queries queries, Queries end, Out out, Less less = Less()) {
    return each(where, queries, end, out, [=](const auto& x) mutable { return has(first, last - first, x, less); });
  }

 private:
  static constexpr const char* kName = "thrust::binary_search";
  template <bool is_upper, typename In, typename T, typename Less>
  static std::ptrdiff_t bound(In first, std::ptrdiff_t count, const T& x, Less less) {
    std::ptrdiff_t low = 0, high = count;
    while (low < high) {
      const std::ptrdiff_t middle = low + (high - low) / 2;
      const bool is_before = is_upper ? !less(x, value(first, middle)) : static_cast<bool>(less(value(first, middle), x));
      if (is_before) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  template <typename In, typename T, typename Less>
  static bool has(In first, std::ptrdiff_t count, const T& x, Less less) {
    const std::ptrdiff_t place = bound<false>(first, count, x, less);
    return place < count && !less(x, value(first, place));
  }
  template <typename Queries, typename Out, typename Find>
  static At<4> each(Where where, Queries queries, Queries end, Out out, Find find) {
    run(where, kName, [=]() mutable {
      for (std::ptrdiff_t i = 0; i < end - queries; ++i) out[i] = static_cast<ValueOf<Out>>(find(value(queries, i)));
    });
    return {end - queries};
  }
};

}  // namespace detail

CUEMU_ALGORITHM(Searches, lower_bound)
CUEMU_ALGORITHM(Searches, upper_bound)
CUEMU_ALGORITHM(Searches, binary_search)

}  // namespace thrust

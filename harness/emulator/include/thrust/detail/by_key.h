// Thrust's algorithms on the runs of equal keys.
#pragma once

#include "calls.h"

namespace thrust {

namespace detail {

struct ByKey {
  template <typename Keys, typename In, typename OutKeys, typename Out, typename Equal = std::equal_to<>>
  static pair<At<3>, At<4>> reduce_by_key(Where where, Keys keys, Keys end, In in, OutKeys unique, Out out,
                                          Equal equal = Equal()) {
    return reduce_by_key(where, keys, end, in, unique, out, equal, std::plus<>());
  }
  template <typename Keys, typename In, typename OutKeys, typename Out, typename Equal, typename Op>
  static pair<At<3>, At<4>> reduce_by_key(Where where, Keys keys, Keys end, In in, OutKeys unique, Out out, Equal equal,
                                          Op op) {
    const auto write = [=](std::ptrdiff_t run, std::ptrdiff_t begin, std::ptrdiff_t length) mutable {
      unique[run] = value(keys, begin);
      out[run] = whole::tree<whole::SumOf<Op, ValueOf<In>, ValueOf<In>>>(in + begin, length, op);
    };
    const std::ptrdiff_t found = each_run(where, "thrust::reduce_by_key", keys, end, equal, write);
    return {At<3>{found}, At<4>{found}};
  }
  template <typename Keys, typename Values, typename Equal = std::equal_to<>>
  static pair<At<0>, At<2>> unique_by_key(Where where, Keys keys, Keys end, Values values, Equal equal = Equal()) {
    const std::ptrdiff_t found = unique_by_key_copy(where, keys, end, values, keys, values, equal).first.places;
    return {At<0>{found}, At<2>{found}};
  }
  template <typename Keys, typename Values, typename OutKeys, typename Out, typename Equal = std::equal_to<>>
  static pair<At<3>, At<4>> unique_by_key_copy(Where where, Keys keys, Keys end, Values values, OutKeys unique, Out out,
                                               Equal equal = Equal()) {
    const auto write = [=](std::ptrdiff_t run, std::ptrdiff_t begin, std::ptrdiff_t) mutable {
      unique[run] = value(keys, begin);
      out[run] = value(values, begin);
    };
    const std::ptrdiff_t found = each_run(where, "thrust::unique_by_key", keys, end, equal, write);
    return {At<3>{found}, At<4>{found}};
  }

  // Prefix sums of each run
  template <typename Keys, typename In, typename Out, typename Equal = std::equal_to<>>
  static At<3> inclusive_scan_by_key(Where where, Keys keys, Keys end, In in, Out out, Equal equal = Equal()) {
    return inclusive_scan_by_key(where, keys, end, in, out, equal, std::plus<ValueOf<In>>());
  }
  template <typename Keys, typename In, typename Out, typename Equal, typename Op>
  static At<3> inclusive_scan_by_key(Where where, Keys keys, Keys end, In in, Out out, Equal equal, Op op) {
    using T = ValueOf<In>;
    run(where, "thrust::inclusive_scan_by_key",
        [=]() mutable { whole::scan_runs<true>(keys, in, end - keys, out, T{}, false, equal, op); });
    return {end - keys};
  }
  template <typename Keys, typename In, typename Out>
  static At<3> exclusive_scan_by_key(Where where, Keys keys, Keys end, In in, Out out) {
    return exclusive_scan_by_key(where, keys, end, in, out, ValueOf<In>{});
  }
  template <typename Keys, typename In, typename Out, typename T, typename Equal = std::equal_to<>>
  static At<3> exclusive_scan_by_key(Where where, Keys keys, Keys end, In in, Out out, T init, Equal equal = Equal()) {
    return exclusive_scan_by_key(where, keys, end, in, out, init, equal, std::plus<>());
  }
  template <typename Keys, typename In, typename Out, typename T, typename Equal, typename Op>
  static At<3> exclusive_scan_by_key(Where where, Keys keys, Keys end, In in, Out out, T init, Equal equal, Op op) {
    run(where, "thrust::exclusive_scan_by_key",
        [=]() mutable { whole::scan_runs<false>(keys, in, end - keys, out, init, true, equal, op); });
    return {end - keys};
  }

 private:
  template <typename Keys, typename Equal, typename Write>
  static std::ptrdiff_t each_run(Where where, const char* name, Keys keys, Keys last, Equal equal, Write write) {
    return result_of(where, name, [=]() mutable {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t begin = 0, end; begin < last - keys; begin = end) {
        end = whole::end_of_run(keys, begin, last - keys, equal);
        write(found++, begin, end - begin);
      }
      return found;
    });
  }
};

}  // namespace detail

CUEMU_ALGORITHM(ByKey, reduce_by_key)
CUEMU_ALGORITHM(ByKey, unique_by_key)
CUEMU_ALGORITHM(ByKey, unique_by_key_copy)
CUEMU_ALGORITHM(ByKey, inclusive_scan_by_key)
CUEMU_ALGORITHM(ByKey, exclusive_scan_by_key)

}  // namespace thrust

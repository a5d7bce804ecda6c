// Thrust's algorithms.
#pragma once

#include "by_key.h"
#include "searches.h"

namespace thrust {

namespace detail {

struct Algorithms {
  template <typename In, typename Function>
  static At<0> for_each(Where where, In first, In last, Function f) { return for_each_n(where, first, last - first, f); }
  template <typename In, typename Size, typename Function>
  static At<0> for_each_n(Where where, In first, Size count, Function f) {
    run(where, "thrust::for_each", [=]() mutable {
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(count); ++i) {
        if constexpr (std::is_lvalue_reference_v<ReferenceOf<In>>) f(first[i]);
        else { auto element = first[i]; f(element); }
      }
    });
    return {static_cast<std::ptrdiff_t>(count)};
  }
  template <typename In, typename Out, typename Function>
  static At<2> transform(Where where, In first, In last, Out out, Function f) {
    run(where, "thrust::transform", [=]() mutable { for (std::ptrdiff_t i = 0; i < last - first; ++i) out[i] = f(value(first, i)); });
    return {last - first};
  }
  template <typename In, typename In2, typename Out, typename Function>
  static At<3> transform(Where where, In first, In last, In2 second, Out out, Function f) {
    run(where, "thrust::transform",
        [=]() mutable { for (std::ptrdiff_t i = 0; i < last - first; ++i) out[i] = f(value(first, i), value(second, i)); });
    return {last - first};
  }
  template <typename In, typename Stencil, typename Out, typename Function, typename Predicate>
  static At<3> transform_if(Where where, In first, In last, Stencil stencil, Out out, Function f, Predicate is_chosen) {
    run(where, "thrust::transform_if", [=]() mutable {
      for (std::ptrdiff_t i = 0; i < last - first; ++i) if (is_chosen(value(stencil, i))) out[i] = f(value(first, i));
    });
    return {last - first};
  }
  template <typename Out, typename T>
  static void fill(Where where, Out first, Out last, const T& x) { fill_n(where, first, last - first, x); }
  template <typename Out, typename Size, typename T>
  static At<0> fill_n(Where where, Out first, Size count, const T& x) {
    run(where, "thrust::fill", [=]() mutable {
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(count); ++i) first[i] = static_cast<ValueOf<Out>>(x);
    });
    return {static_cast<std::ptrdiff_t>(count)};
  }
  template <typename Out>
  static void sequence(Where where, Out first, Out last) { sequence(where, first, last, ValueOf<Out>(0)); }
  template <typename Out, typename T>
  static void sequence(Where where, Out first, Out last, T init) { sequence(where, first, last, init, T(1)); }
  template <typename Out, typename T>
  static void sequence(Where where, Out first, Out last, T init, T step) {
    run(where, "thrust::sequence", [=]() mutable {
      for (std::ptrdiff_t i = 0; i < last - first; ++i) first[i] = static_cast<ValueOf<Out>>(init + step * static_cast<T>(i));
    });
  }
  template <typename Out, typename Function>
  static void tabulate(Where where, Out first, Out last, Function f) {
    run(where, "thrust::tabulate", [=]() mutable { for (std::ptrdiff_t i = 0; i < last - first; ++i) first[i] = f(i); });
  }
  template <typename In, typename Out, typename Op = std::minus<>>
  static At<2> adjacent_difference(Where where, In first, In last, Out out, Op op = Op()) {
    run(where, "thrust::adjacent_difference", [=]() mutable {
      for (std::ptrdiff_t i = last - first - 1; i > 0; --i) out[i] = op(value(first, i), value(first, i - 1));
      if (last - first > 0) out[0] = value(first, 0);
    });
    return {last - first};
  }
  template <typename Map, typename In, typename Out>
  static At<3> gather(Where where, Map map, Map map_end, In in, Out out) {
    run(where, "thrust::gather", [=]() mutable { for (std::ptrdiff_t i = 0; i < map_end - map; ++i) out[i] = in[value(map, i)]; });
    return {map_end - map};
  }
  template <typename In, typename Map, typename Out>
  static void scatter(Where where, In first, In last, Map map, Out out) {
    run(where, "thrust::scatter", [=]() mutable { for (std::ptrdiff_t i = 0; i < last - first; ++i) out[value(map, i)] = first[i]; });
  }

  // Selections
  template <typename In, typename Out, typename Predicate>
  static At<2> copy_if(Where where, In first, In last, Out out, Predicate is_chosen) {
    return {result_of(where, "thrust::copy_if", [=]() mutable { return kept(first, last - first, first, out, is_chosen); })};
  }
  template <typename In, typename Stencil, typename Out, typename Predicate>
  static At<3> copy_if(Where where, In first, In last, Stencil stencil, Out out, Predicate is_chosen) {
    return {result_of(where, "thrust::copy_if", [=]() mutable { return kept(first, last - first, stencil, out, is_chosen); })};
  }
  template <typename In, typename Predicate>
  static At<0> remove_if(Where where, In first, In last, Predicate goes) {
    return {result_of(where, "thrust::remove_if", [=]() mutable {
      return kept(first, last - first, first, first, [goes](const auto& x) { return !goes(x); });
    })};
  }
  template <typename In, typename T>
  static At<0> remove(Where where, In first, In last, const T& x) {
    return remove_if(where, first, last, [x](const auto& one) { return one == x; });
  }
  template <typename In, typename Predicate, typename T>
  static void replace_if(Where where, In first, In last, Predicate is_chosen, const T& x) {
    run(where, "thrust::replace_if", [=]() mutable {
      for (std::ptrdiff_t i = 0; i < last - first; ++i) if (is_chosen(value(first, i))) first[i] = static_cast<ValueOf<In>>(x);
    });
  }
  template <typename In, typename Equal = std::equal_to<>>
  static At<0> unique(Where where, In first, In last, Equal equal = Equal()) {
    return {unique_copy(where, first, last, first, equal).places};
  }
  template <typename In, typename Out, typename Equal = std::equal_to<>>
  static At<2> unique_copy(Where where, In first, In last, Out out, Equal equal = Equal()) {
    return {result_of(where, "thrust::unique", [=]() mutable {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t begin = 0; begin < last - first; begin = whole::end_of_run(first, begin, last - first, equal)) {
        out[found++] = value(first, begin);
      }
      return found;
    })};
  }

  // Reductions
  template <typename In>
  static auto reduce(Where where, In first, In last) { return reduce(where, first, last, ValueOf<In>{}); }
  template <typename In, typename T>
  static T reduce(Where where, In first, In last, T init) { return reduce(where, first, last, init, std::plus<>()); }
  template <typename In, typename T, typename Op>
  static T reduce(Where where, In first, In last, T init, Op op) {
    return result_of(where, "thrust::reduce", [=]() mutable { return static_cast<T>(whole::reduce(first, last - first, init, op)); });
  }
  template <typename In, typename Function, typename T, typename Op>
  static T transform_reduce(Where where, In first, In last, Function f, T init, Op op) {
    const transform_iterator<Function, In> mapped(first, f);
    return result_of(where, "thrust::transform_reduce", [=]() mutable { return static_cast<T>(whole::reduce(mapped, last - first, init, op)); });
  }
  template <typename In, typename In2, typename T>
  static T inner_product(Where where, In first, In last, In2 second, T init) {
    return inner_product(where, first, last, second, init, std::plus<T>(), std::multiplies<T>());
  }
  template <typename In, typename In2, typename T, typename Op, typename Op2>
  static T inner_product(Where where, In first, In last, In2 second, T init, Op op, Op2 op2) {
    const auto product = [op2](const auto& both) { return op2(get<0>(both), get<1>(both)); };
    return transform_reduce(where, make_zip_iterator(first, second), make_zip_iterator(last, second + (last - first)), product,
                            init, op);
  }
  template <typename In, typename T>
  static std::ptrdiff_t count(Where where, In first, In last, const T& x) {
    return count_if(where, first, last, [x](const auto& one) { return one == x; });
  }
  template <typename In, typename Predicate>
  static std::ptrdiff_t count_if(Where where, In first, In last, Predicate is_counted) {
    return result_of(where, "thrust::count_if", [=]() mutable {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t i = 0; i < last - first; ++i) found += is_counted(value(first, i)) ? 1 : 0;
      return found;
    });
  }
  template <typename In, typename Predicate>
  static bool any_of(Where where, In first, In last, Predicate holds) { return count_if(where, first, last, holds) > 0; }
  template <typename In, typename Predicate>
  static bool none_of(Where where, In first, In last, Predicate holds) { return count_if(where, first, last, holds) == 0; }
  template <typename In, typename Predicate>
  static bool all_of(Where where, In first, In last, Predicate holds) {
    return count_if(where, first, last, holds) == last - first;
  }
  template <typename In>
  static At<0> max_element(Where where, In first, In last) { return max_element(where, first, last, std::less<>()); }
  template <typename In, typename Less>
  static At<0> max_element(Where where, In first, In last, Less less) {
    return {best(where, first, last - first, [less](const auto& a, const auto& b) { return less(b, a); })};
  }
  template <typename In>
  static At<0> min_element(Where where, In first, In last) { return min_element(where, first, last, std::less<>()); }
  template <typename In, typename Less>
  static At<0> min_element(Where where, In first, In last, Less less) { return {best(where, first, last - first, less)}; }
  template <typename In, typename Less = std::less<>>
  static pair<At<0>, At<0>> minmax_element(Where where, In first, In last, Less less = Less()) {
    return {min_element(where, first, last, less), max_element(where, first, last, less)};
  }
  template <typename In, typename Predicate>
  static At<0> find_if(Where where, In first, In last, Predicate holds) {
    return {result_of(where, "thrust::find_if", [=]() mutable {
      std::ptrdiff_t i = 0;
      while (i < last - first && !holds(value(first, i))) ++i;
      return i;
    })};
  }
  template <typename In, typename T>
  static At<0> find(Where where, In first, In last, const T& x) {
    return find_if(where, first, last, [x](const auto& one) { return one == x; });
  }

  // Prefix sums
  template <typename In, typename Out>
  static At<2> inclusive_scan(Where where, In first, In last, Out out) {
    return inclusive_scan(where, first, last, out, std::plus<ValueOf<In>>());
  }
  template <typename In, typename Out, typename Op>
  static At<2> inclusive_scan(Where where, In first, In last, Out out, Op op) {
    using T = ValueOf<In>;
    run(where, "thrust::inclusive_scan", [=]() mutable { whole::scan<true>(first, last - first, out, T{}, false, op); });
    return {last - first};
  }
  template <typename In, typename Out>
  static At<2> exclusive_scan(Where where, In first, In last, Out out) {
    return exclusive_scan(where, first, last, out, ValueOf<In>{});
  }
  template <typename In, typename Out, typename T>
  static At<2> exclusive_scan(Where where, In first, In last, Out out, T init) {
    return exclusive_scan(where, first, last, out, init, std::plus<>());
  }
  template <typename In, typename Out, typename T, typename Op>
  static At<2> exclusive_scan(Where where, In first, In last, Out out, T init, Op op) {
    run(where, "thrust::exclusive_scan", [=]() mutable { whole::scan<false>(first, last - first, out, init, true, op); });
    return {last - first};
  }

  // Orders
  template <typename Keys>
  static void sort(Where where, Keys first, Keys last) { sort(where, first, last, std::less<>()); }
  template <typename Keys, typename Less>
  static void sort(Where where, Keys first, Keys last, Less less) {
    const Scratch<ValueOf<Keys>> other(where, last - first);
    const auto keys = other.get();
    run(where, "thrust::sort", [=]() mutable { whole::sort(first, whole::Nothing{}, last - first, keys, whole::Nothing{}, less); });
  }
  template <typename Keys, typename Values>
  static void sort_by_key(Where where, Keys first, Keys last, Values values) {
    sort_by_key(where, first, last, values, std::less<>());
  }
  template <typename Keys, typename Values, typename Less>
  static void sort_by_key(Where where, Keys first, Keys last, Values values, Less less) {
    const Scratch<ValueOf<Keys>> other(where, last - first);
    const Scratch<ValueOf<Values>> other_values(where, last - first);
    const auto keys = other.get();
    const auto others = other_values.get();
    run(where, "thrust::sort_by_key", [=]() mutable { whole::sort(first, values, last - first, keys, others, less); });
  }
  template <typename... Arguments>
  static void stable_sort(Where where, Arguments... all) { sort(where, all...); }
  template <typename... Arguments>
  static void stable_sort_by_key(Where where, Arguments... all) { sort_by_key(where, all...); }
  template <typename In, typename Less = std::less<>>
  static bool is_sorted(Where where, In first, In last, Less less = Less()) {
    return result_of(where, "thrust::is_sorted", [=]() mutable {
      for (std::ptrdiff_t i = 1; i < last - first; ++i) if (less(value(first, i), value(first, i - 1))) return false;
      return true;
    });
  }
  template <typename In>
  static void reverse(Where where, In first, In last) {
    run(where, "thrust::reverse", [=]() mutable {
      for (std::ptrdiff_t i = 0, j = last - first - 1; i < j; ++i, --j) {
        const auto kept = value(first, i);
        first[i] = value(first, j);
        first[j] = kept;
      }
    });
  }
  template <typename In, typename Queries, typename Out>
  static At<4> lower_bound(Where where, In first, In last, Queries queries, Queries end, Out out) {
    return bounds<false>(where, first, last, queries, end, out);
  }
  template <typename In, typename Queries, typename Out>
  static At<4> upper_bound(Where where, In first, In last, Queries queries, Queries end, Out out) {
    return bounds<true>(where, first, last, queries, end, out);
  }

 private:
  template <typename In, typename Stencil, typename Out, typename Predicate>
  static std::ptrdiff_t kept(In first, std::ptrdiff_t count, Stencil stencil, Out out, Predicate is_chosen) {
    std::ptrdiff_t found = 0;
    for (std::ptrdiff_t i = 0; i < count; ++i) if (is_chosen(value(stencil, i))) out[found++] = value(first, i);
    return found;
  }
  template <typename In, typename Before>
  static std::ptrdiff_t best(Where where, In first, std::ptrdiff_t count, Before before) {
    return result_of(where, "thrust::extrema", [=]() mutable {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t i = 1; i < count; ++i) if (before(value(first, i), value(first, found))) found = i;
      return found;
    });
  }
};

}  // namespace detail

CUEMU_ALGORITHM(Algorithms, for_each)
CUEMU_ALGORITHM(Algorithms, for_each_n)
CUEMU_ALGORITHM(Algorithms, transform)
CUEMU_ALGORITHM(Algorithms, transform_if)
CUEMU_ALGORITHM(Algorithms, fill)
CUEMU_ALGORITHM(Algorithms, fill_n)
CUEMU_ALGORITHM(Algorithms, sequence)
CUEMU_ALGORITHM(Algorithms, tabulate)
CUEMU_ALGORITHM(Algorithms, adjacent_difference)
CUEMU_ALGORITHM(Algorithms, gather)
CUEMU_ALGORITHM(Algorithms, scatter)
CUEMU_ALGORITHM(Algorithms, copy_if)
CUEMU_ALGORITHM(Algorithms, remove)
CUEMU_ALGORITHM(Algorithms, remove_if)
CUEMU_ALGORITHM(Algorithms, replace_if)
CUEMU_ALGORITHM(Algorithms, unique)
CUEMU_ALGORITHM(Algorithms, unique_copy)
CUEMU_ALGORITHM(Algorithms, reduce)
CUEMU_ALGORITHM(Algorithms, transform_reduce)
CUEMU_ALGORITHM(Algorithms, inner_product)
CUEMU_ALGORITHM(Algorithms, count)
CUEMU_ALGORITHM(Algorithms, count_if)
CUEMU_ALGORITHM(Algorithms, any_of)
CUEMU_ALGORITHM(Algorithms, none_of)
CUEMU_ALGORITHM(Algorithms, all_of)
CUEMU_ALGORITHM(Algorithms, max_element)
CUEMU_ALGORITHM(Algorithms, min_element)
CUEMU_ALGORITHM(Algorithms, minmax_element)
CUEMU_ALGORITHM(Algorithms, find)
CUEMU_ALGORITHM(Algorithms, find_if)
CUEMU_ALGORITHM(Algorithms, inclusive_scan)
CUEMU_ALGORITHM(Algorithms, exclusive_scan)
CUEMU_ALGORITHM(Algorithms, sort)
CUEMU_ALGORITHM(Algorithms, sort_by_key)
CUEMU_ALGORITHM(Algorithms, stable_sort)
CUEMU_ALGORITHM(Algorithms, stable_sort_by_key)
CUEMU_ALGORITHM(Algorithms, is_sorted)
CUEMU_ALGORITHM(Algorithms, reverse)

// A copy may lead from the host to the device or back. Then the host makes it, element by element.
template <typename In, typename Out>
Out copy(In first, In last, Out out) {
  constexpr bool from_device = detail::kIsOnDevice<In>, to_device = detail::kIsOnDevice<Out>;
  if constexpr (from_device != to_device) {
    for (std::ptrdiff_t i = 0; i < last - first; ++i) out[i] = detail::value(first, i);
  } else {
    const auto from = detail::raw(first);
    const auto to = detail::raw(out);
    const std::ptrdiff_t count = last - first;
    detail::run(to_device ? detail::Where::device : detail::Where::host, "thrust::copy",
                [=] { for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = from[i]; });
  }
  return out + (last - first);
}
template <typename Policy, typename In, typename Out>
  requires detail::kIsPolicy<Policy>
Out copy(const Policy&, In first, In last, Out out) {
  const auto from = detail::raw(first);
  const auto to = detail::raw(out);
  const std::ptrdiff_t count = last - first;
  detail::run(Policy::where, "thrust::copy", [=] { for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = from[i]; });
  return out + count;
}
template <typename In, typename Size, typename Out>
  requires std::is_integral_v<Size>
Out copy_n(In first, Size count, Out out) { return copy(first, first + count, out); }

}  // namespace thrust

// Thrust's algorithms. With a policy, or on pointers of the device, each runs as a kernel of one thread; otherwise the
// host runs it, as Thrust does with plain pointers.
#pragma once

#include <algorithm>

#include "iterators.h"

namespace thrust {

namespace detail {

namespace whole = ::cuemu::whole;

// A result that is an argument, by its number among those without the policy, and some places on.
template <int number>
struct At {
  std::ptrdiff_t places;
};

template <typename Function>
void run(Where where, const char* name, Function function) {
  if (where == Where::device) whole::run(name, function);
  else function();
}

// Runs a function that returns a value, which a kernel leaves in the device's memory.
template <typename Function>
auto result_of(Where where, const char* name, Function function) {
  using Result = decltype(function());
  if (where == Where::host) return function();
  Result* place = nullptr;
  Result result{};
  cudaMalloc(&place, sizeof result);
  whole::run(name, [=] { *place = function(); });
  cudaMemcpy(static_cast<void*>(&result), place, sizeof result, cudaMemcpyDeviceToHost);
  cudaFree(place);
  return result;
}

// Memory for a while: of the device, or of the host.
template <typename T>
class Scratch {
 public:
  Scratch(Where where, std::ptrdiff_t count) : where_(where) {
    if (where == Where::device) cudaMalloc(&data_, count * sizeof(T) + 1);
    else data_ = static_cast<T*>(::operator new(count * sizeof(T) + 1));
  }
  ~Scratch() {
    if (where_ == Where::device) cudaFree(data_);
    else ::operator delete(data_);
  }
  Scratch(const Scratch&) = delete;
  T* get() const { return data_; }

 private:
  Where where_;
  T* data_ = nullptr;
};

// An iterator's value, where the iterator gives something that stands for it.
template <typename Iterator>
ValueOf<Iterator> value(const Iterator& at, std::ptrdiff_t n) { return static_cast<ValueOf<Iterator>>(at[n]); }

struct Algorithms {
  template <typename In, typename Function>
  static At<0> for_each(Where where, In first, In last, Function f) { return for_each_n(where, first, last - first, f); }
  template <typename In, typename Size, typename Function>
  static At<0> for_each_n(Where where, In first, Size count, Function f) {
    run(where, "thrust::for_each", [=] {
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(count); ++i) {
        if constexpr (std::is_lvalue_reference_v<ReferenceOf<In>>) f(first[i]);
        else { auto element = first[i]; f(element); }
      }
    });
    return {static_cast<std::ptrdiff_t>(count)};
  }
  template <typename In, typename Out, typename Function>
  static At<2> transform(Where where, In first, In last, Out out, Function f) {
    run(where, "thrust::transform", [=] { for (std::ptrdiff_t i = 0; i < last - first; ++i) out[i] = f(value(first, i)); });
    return {last - first};
  }
  template <typename In, typename In2, typename Out, typename Function>
  static At<3> transform(Where where, In first, In last, In2 second, Out out, Function f) {
    run(where, "thrust::transform",
        [=] { for (std::ptrdiff_t i = 0; i < last - first; ++i) out[i] = f(value(first, i), value(second, i)); });
    return {last - first};
  }
  template <typename In, typename Stencil, typename Out, typename Function, typename Predicate>
  static At<3> transform_if(Where where, In first, In last, Stencil stencil, Out out, Function f, Predicate is_chosen) {
    run(where, "thrust::transform_if", [=] {
      for (std::ptrdiff_t i = 0; i < last - first; ++i) if (is_chosen(value(stencil, i))) out[i] = f(value(first, i));
    });
    return {last - first};
  }
  template <typename Out, typename T>
  static void fill(Where where, Out first, Out last, const T& x) { fill_n(where, first, last - first, x); }
  template <typename Out, typename Size, typename T>
  static At<0> fill_n(Where where, Out first, Size count, const T& x) {
    run(where, "thrust::fill", [=] {
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
    run(where, "thrust::sequence", [=] {
      for (std::ptrdiff_t i = 0; i < last - first; ++i) first[i] = static_cast<ValueOf<Out>>(init + step * static_cast<T>(i));
    });
  }
  template <typename Out, typename Function>
  static void tabulate(Where where, Out first, Out last, Function f) {
    run(where, "thrust::tabulate", [=] { for (std::ptrdiff_t i = 0; i < last - first; ++i) first[i] = f(i); });
  }
  template <typename Map, typename In, typename Out>
  static At<3> gather(Where where, Map map, Map map_end, In in, Out out) {
    run(where, "thrust::gather", [=] { for (std::ptrdiff_t i = 0; i < map_end - map; ++i) out[i] = in[value(map, i)]; });
    return {map_end - map};
  }
  template <typename In, typename Map, typename Out>
  static void scatter(Where where, In first, In last, Map map, Out out) {
    run(where, "thrust::scatter", [=] { for (std::ptrdiff_t i = 0; i < last - first; ++i) out[value(map, i)] = first[i]; });
  }

  // Selections
  template <typename In, typename Out, typename Predicate>
  static At<2> copy_if(Where where, In first, In last, Out out, Predicate is_chosen) {
    return {result_of(where, "thrust::copy_if", [=] { return kept(first, last - first, first, out, is_chosen); })};
  }
  template <typename In, typename Stencil, typename Out, typename Predicate>
  static At<3> copy_if(Where where, In first, In last, Stencil stencil, Out out, Predicate is_chosen) {
    return {result_of(where, "thrust::copy_if", [=] { return kept(first, last - first, stencil, out, is_chosen); })};
  }
  template <typename In, typename Predicate>
  static At<0> remove_if(Where where, In first, In last, Predicate goes) {
    return {result_of(where, "thrust::remove_if", [=] {
      return kept(first, last - first, first, first, [goes](const auto& x) { return !goes(x); });
    })};
  }
  template <typename In, typename T>
  static At<0> remove(Where where, In first, In last, const T& x) {
    return remove_if(where, first, last, [x](const auto& one) { return one == x; });
  }
  template <typename In, typename Predicate, typename T>
  static void replace_if(Where where, In first, In last, Predicate is_chosen, const T& x) {
    run(where, "thrust::replace_if", [=] {
      for (std::ptrdiff_t i = 0; i < last - first; ++i) if (is_chosen(value(first, i))) first[i] = static_cast<ValueOf<In>>(x);
    });
  }
  template <typename In>
  static At<0> unique(Where where, In first, In last) {
    return {result_of(where, "thrust::unique", [=] {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t i = 0; i < last - first; ++i) {
        if (i == 0 || !(value(first, i) == value(first, found - 1))) first[found++] = value(first, i);
      }
      return found;
    })};
  }

  // Reductions
  template <typename In>
  static auto reduce(Where where, In first, In last) { return reduce(where, first, last, ValueOf<In>{}); }
  template <typename In, typename T>
  static T reduce(Where where, In first, In last, T init) { return reduce(where, first, last, init, std::plus<T>()); }
  template <typename In, typename T, typename Op>
  static T reduce(Where where, In first, In last, T init, Op op) {
    return result_of(where, "thrust::reduce", [=] { return whole::reduce<T>(first, last - first, init, op); });
  }
  template <typename In, typename Function, typename T, typename Op>
  static T transform_reduce(Where where, In first, In last, Function f, T init, Op op) {
    const transform_iterator<Function, In> mapped(first, f);
    return result_of(where, "thrust::transform_reduce", [=] { return whole::reduce<T>(mapped, last - first, init, op); });
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
    return result_of(where, "thrust::count_if", [=] {
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
  template <typename In>
  static pair<At<0>, At<0>> minmax_element(Where where, In first, In last) {
    return {min_element(where, first, last), max_element(where, first, last)};
  }
  template <typename In, typename Predicate>
  static At<0> find_if(Where where, In first, In last, Predicate holds) {
    return {result_of(where, "thrust::find_if", [=] {
      std::ptrdiff_t i = 0;
      while (i < last - first && !holds(value(first, i))) ++i;
      return i;
    })};
  }
  template <typename In, typename T>
  static At<0> find(Where where, In first, In last, const T& x) {
    return find_if(where, first, last, [x](const auto& one) { return one == x; });
  }
  template <typename Keys, typename In, typename OutKeys, typename Out>
  static pair<At<3>, At<4>> reduce_by_key(Where where, Keys keys, Keys end, In in, OutKeys unique, Out out) {
    const std::ptrdiff_t found = result_of(where, "thrust::reduce_by_key", [=] {
      std::ptrdiff_t runs = 0;
      for (std::ptrdiff_t begin = 0, i; begin < end - keys; begin = i) {
        for (i = begin + 1; i < end - keys && value(keys, i) == value(keys, begin); ++i) {}
        unique[runs] = value(keys, begin);
        out[runs++] = whole::tree<ValueOf<In>>(in + begin, i - begin, std::plus<ValueOf<In>>());
      }
      return runs;
    });
    return {At<3>{found}, At<4>{found}};
  }

  // Prefix sums
  template <typename In, typename Out>
  static At<2> inclusive_scan(Where where, In first, In last, Out out) {
    return inclusive_scan(where, first, last, out, std::plus<ValueOf<In>>());
  }
  template <typename In, typename Out, typename Op>
  static At<2> inclusive_scan(Where where, In first, In last, Out out, Op op) {
    using T = ValueOf<In>;
    run(where, "thrust::inclusive_scan", [=] { whole::scan<true, T>(first, last - first, out, T{}, false, op); });
    return {last - first};
  }
  template <typename In, typename Out>
  static At<2> exclusive_scan(Where where, In first, In last, Out out) {
    return exclusive_scan(where, first, last, out, ValueOf<In>{});
  }
  template <typename In, typename Out, typename T>
  static At<2> exclusive_scan(Where where, In first, In last, Out out, T init) {
    return exclusive_scan(where, first, last, out, init, std::plus<T>());
  }
  template <typename In, typename Out, typename T, typename Op>
  static At<2> exclusive_scan(Where where, In first, In last, Out out, T init, Op op) {
    run(where, "thrust::exclusive_scan", [=] { whole::scan<false, T>(first, last - first, out, init, true, op); });
    return {last - first};
  }

  // Orders
  template <typename Keys>
  static void sort(Where where, Keys first, Keys last) { sort(where, first, last, std::less<>()); }
  template <typename Keys, typename Less>
  static void sort(Where where, Keys first, Keys last, Less less) {
    const Scratch<ValueOf<Keys>> other(where, last - first);
    const auto keys = other.get();
    run(where, "thrust::sort", [=] { whole::sort(first, whole::Nothing{}, last - first, keys, whole::Nothing{}, less); });
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
    run(where, "thrust::sort_by_key", [=] { whole::sort(first, values, last - first, keys, others, less); });
  }
  template <typename... Arguments>
  static void stable_sort(Where where, Arguments... all) { sort(where, all...); }
  template <typename... Arguments>
  static void stable_sort_by_key(Where where, Arguments... all) { sort_by_key(where, all...); }
  template <typename In>
  static bool is_sorted(Where where, In first, In last) {
    return result_of(where, "thrust::is_sorted", [=] {
      for (std::ptrdiff_t i = 1; i < last - first; ++i) if (value(first, i) < value(first, i - 1)) return false;
      return true;
    });
  }
  template <typename In>
  static void reverse(Where where, In first, In last) {
    run(where, "thrust::reverse", [=] {
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
    return result_of(where, "thrust::extrema", [=] {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t i = 1; i < count; ++i) if (before(value(first, i), value(first, found))) found = i;
      return found;
    });
  }
  template <bool is_upper, typename In, typename Queries, typename Out>
  static At<4> bounds(Where where, In first, In last, Queries queries, Queries end, Out out) {
    run(where, "thrust::binary_search", [=] {
      for (std::ptrdiff_t i = 0; i < end - queries; ++i) {
        std::ptrdiff_t low = 0, high = last - first;
        while (low < high) {
          const std::ptrdiff_t middle = low + (high - low) / 2;
          const bool is_before = is_upper ? !(value(queries, i) < value(first, middle)) : value(first, middle) < value(queries, i);
          if (is_before) low = middle + 1;
          else high = middle;
        }
        out[i] = static_cast<ValueOf<Out>>(low);
      }
    });
    return {end - queries};
  }
};

template <typename Result, typename Arguments>
auto resolved(const Result& result, const Arguments&) { return result; }
template <int number, typename Arguments>
auto resolved(const At<number>& result, const Arguments& all) { return get<number>(all) + result.places; }
template <int first, int second, typename Arguments>
auto resolved(const pair<At<first>, At<second>>& result, const Arguments& all) {
  return std::make_pair(resolved(result.first, all), resolved(result.second, all));
}

template <typename Call, typename... Arguments>
auto call(Where where, Call algorithm, const Arguments&... all) {
  if constexpr (std::is_void_v<decltype(algorithm(where, raw(all)...))>) algorithm(where, raw(all)...);
  else return resolved(algorithm(where, raw(all)...), tuple<Arguments...>(all...));
}

}  // namespace detail

#define CUEMU_ALGORITHM(name)                                                                                     \
  template <typename First, typename... More>                                                                     \
  auto name(const First& first, const More&... more) {                                                            \
    const auto algorithm = [](detail::Where where, auto... all) { return detail::Algorithms::name(where, all...); }; \
    if constexpr (detail::kIsPolicy<First>) return detail::call(First::where, algorithm, more...);                \
    else {                                                                                                        \
      constexpr bool is_on_device = detail::kIsOnDevice<First> || (detail::kIsOnDevice<More> || ...);             \
      return detail::call(is_on_device ? detail::Where::device : detail::Where::host, algorithm, first, more...); \
    }                                                                                                             \
  }
CUEMU_ALGORITHM(for_each)
CUEMU_ALGORITHM(for_each_n)
CUEMU_ALGORITHM(transform)
CUEMU_ALGORITHM(transform_if)
CUEMU_ALGORITHM(fill)
CUEMU_ALGORITHM(fill_n)
CUEMU_ALGORITHM(sequence)
CUEMU_ALGORITHM(tabulate)
CUEMU_ALGORITHM(gather)
CUEMU_ALGORITHM(scatter)
CUEMU_ALGORITHM(copy_if)
CUEMU_ALGORITHM(remove)
CUEMU_ALGORITHM(remove_if)
CUEMU_ALGORITHM(replace_if)
CUEMU_ALGORITHM(unique)
CUEMU_ALGORITHM(reduce)
CUEMU_ALGORITHM(transform_reduce)
CUEMU_ALGORITHM(inner_product)
CUEMU_ALGORITHM(count)
CUEMU_ALGORITHM(count_if)
CUEMU_ALGORITHM(any_of)
CUEMU_ALGORITHM(none_of)
CUEMU_ALGORITHM(all_of)
CUEMU_ALGORITHM(max_element)
CUEMU_ALGORITHM(min_element)
CUEMU_ALGORITHM(minmax_element)
CUEMU_ALGORITHM(find)
CUEMU_ALGORITHM(find_if)
CUEMU_ALGORITHM(reduce_by_key)
CUEMU_ALGORITHM(inclusive_scan)
CUEMU_ALGORITHM(exclusive_scan)
CUEMU_ALGORITHM(sort)
CUEMU_ALGORITHM(sort_by_key)
CUEMU_ALGORITHM(stable_sort)
CUEMU_ALGORITHM(stable_sort_by_key)
CUEMU_ALGORITHM(is_sorted)
CUEMU_ALGORITHM(reverse)
CUEMU_ALGORITHM(lower_bound)
CUEMU_ALGORITHM(upper_bound)
#undef CUEMU_ALGORITHM

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

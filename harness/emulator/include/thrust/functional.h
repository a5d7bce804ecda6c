// Stands in for Thrust's function objects, pairs and tuples: the standard library's.
#pragma once

#include <functional>
#include <tuple>
#include <utility>

namespace thrust {

using std::bit_and;
using std::bit_or;
using std::bit_xor;
using std::divides;
using std::equal_to;
using std::get;
using std::greater;
using std::greater_equal;
using std::less;
using std::less_equal;
using std::logical_and;
using std::logical_not;
using std::logical_or;
using std::make_pair;
using std::make_tuple;
using std::minus;
using std::modulus;
using std::multiplies;
using std::negate;
using std::not_equal_to;
using std::pair;
using std::plus;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;

template <typename T = void>
struct maximum {
  constexpr T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <>
struct maximum<void> {
  template <typename T, typename U>
  constexpr std::common_type_t<T, U> operator()(const T& a, const U& b) const { return a < b ? b : a; }
};
template <typename T = void>
struct minimum {
  constexpr T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <>
struct minimum<void> {
  template <typename T, typename U>
  constexpr std::common_type_t<T, U> operator()(const T& a, const U& b) const { return b < a ? b : a; }
};
template <typename T = void>
struct identity {
  constexpr const T& operator()(const T& x) const { return x; }
};
template <>
struct identity<void> {
  template <typename T>
  constexpr T&& operator()(T&& x) const { return std::forward<T>(x); }
};
template <typename T = void>
struct square {
  constexpr T operator()(const T& x) const { return x * x; }
};
template <>
struct square<void> {
  template <typename T>
  constexpr T operator()(const T& x) const { return x * x; }
};

}  // namespace thrust

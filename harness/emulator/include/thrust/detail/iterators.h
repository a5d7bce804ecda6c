// Thrust's iterators that compute what they point to.
#pragma once

#include "pointers.h"

namespace thrust {

namespace detail {

// What random access needs beside `at(n)` and a place.
template <typename Self, typename Value, typename Reference>
struct Facade {
  using value_type = Value;
  using reference = Reference;
  using pointer = void;
  using difference_type = std::ptrdiff_t;
  using iterator_category = std::random_access_iterator_tag;
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }
  Reference operator*() const { return self().at(0); }
  Reference operator[](difference_type n) const { return self().at(n); }
  Self& operator+=(difference_type n) { self().advance(n); return self(); }
  Self& operator-=(difference_type n) { self().advance(-n); return self(); }
  Self& operator++() { return *this += 1; }
  Self& operator--() { return *this += -1; }
  Self operator++(int) { Self old = self(); ++*this; return old; }
  Self operator--(int) { Self old = self(); --*this; return old; }
  friend Self operator+(Self at, difference_type n) { at.advance(n); return at; }
  friend Self operator+(difference_type n, Self at) { at.advance(n); return at; }
  friend Self operator-(Self at, difference_type n) { at.advance(-n); return at; }
  friend difference_type operator-(const Self& a, const Self& b) { return a.distance_from(b); }
  friend bool operator==(const Self& a, const Self& b) { return a.distance_from(b) == 0; }
  friend auto operator<=>(const Self& a, const Self& b) { return a.distance_from(b) <=> 0; }
};

template <typename Iterator>
using ReferenceOf = decltype(std::declval<const Iterator&>()[0]);
using ::cuemu::whole::ValueOf;

}  // namespace detail

template <typename T>
struct counting_iterator : detail::Facade<counting_iterator<T>, T, T> {
  T value{};
  counting_iterator() = default;
  explicit counting_iterator(T value) : value(value) {}
  T at(std::ptrdiff_t n) const { return static_cast<T>(value + n); }
  void advance(std::ptrdiff_t n) { value = at(n); }
  std::ptrdiff_t distance_from(const counting_iterator& other) const {
    return static_cast<std::ptrdiff_t>(value) - static_cast<std::ptrdiff_t>(other.value);
  }
};
template <typename T>
counting_iterator<T> make_counting_iterator(T value) { return counting_iterator<T>(value); }

template <typename T>
struct constant_iterator : detail::Facade<constant_iterator<T>, T, T> {
  T value{};
  std::ptrdiff_t place = 0;
  explicit constant_iterator(T value, std::ptrdiff_t place = 0) : value(value), place(place) {}
  T at(std::ptrdiff_t) const { return value; }
  void advance(std::ptrdiff_t n) { place += n; }
  std::ptrdiff_t distance_from(const constant_iterator& other) const { return place - other.place; }
};
template <typename T>
constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

namespace detail {

// The value that a transform_iterator names, or else its function's.
template <typename Function, typename Iterator, typename Reference, typename Value>
using MappedTo = std::remove_cvref_t<std::conditional_t<
    !std::is_void_v<Value>, Value,
    std::conditional_t<!std::is_void_v<Reference>, Reference, std::invoke_result_t<Function&, ValueOf<Iterator>>>>>;

}  // namespace detail

template <typename Function, typename Iterator, typename Reference = void, typename Value = void>
struct transform_iterator : detail::Facade<transform_iterator<Function, Iterator, Reference, Value>,
                                           detail::MappedTo<Function, Iterator, Reference, Value>,
                                           detail::MappedTo<Function, Iterator, Reference, Value>> {
  Iterator base;
  mutable Function function;
  transform_iterator(Iterator base, Function function = Function()) : base(base), function(function) {}
  detail::MappedTo<Function, Iterator, Reference, Value> at(std::ptrdiff_t n) const {
    return static_cast<detail::MappedTo<Function, Iterator, Reference, Value>>(
        function(static_cast<detail::ValueOf<Iterator>>(base[n])));
  }
  void advance(std::ptrdiff_t n) { base += n; }
  std::ptrdiff_t distance_from(const transform_iterator& other) const { return base - other.base; }
};
template <typename Iterator, typename Function>
transform_iterator<Function, Iterator> make_transform_iterator(Iterator base, Function function) { return {base, function}; }

template <typename Elements, typename Indices>
struct permutation_iterator : detail::Facade<permutation_iterator<Elements, Indices>, detail::ValueOf<Elements>,
                                             detail::ReferenceOf<Elements>> {
  Elements elements;
  Indices indices;
  permutation_iterator(Elements elements, Indices indices) : elements(elements), indices(indices) {}
  detail::ReferenceOf<Elements> at(std::ptrdiff_t n) const {
    return elements[static_cast<std::ptrdiff_t>(static_cast<detail::ValueOf<Indices>>(indices[n]))];
  }
  void advance(std::ptrdiff_t n) { indices += n; }
  std::ptrdiff_t distance_from(const permutation_iterator& other) const { return indices - other.indices; }
};
template <typename Elements, typename Indices>
permutation_iterator<Elements, Indices> make_permutation_iterator(Elements elements, Indices indices) {
  return {elements, indices};
}

template <typename Iterator>
struct reverse_iterator
    : detail::Facade<reverse_iterator<Iterator>, detail::ValueOf<Iterator>, detail::ReferenceOf<Iterator>> {
  Iterator base;
  explicit reverse_iterator(Iterator base) : base(base) {}
  detail::ReferenceOf<Iterator> at(std::ptrdiff_t n) const { return base[-1 - n]; }
  void advance(std::ptrdiff_t n) { base -= n; }
  std::ptrdiff_t distance_from(const reverse_iterator& other) const { return other.base - base; }
};
template <typename Iterator>
reverse_iterator<Iterator> make_reverse_iterator(Iterator base) { return reverse_iterator<Iterator>(base); }

struct Ignored {
  template <typename T>
  const Ignored& operator=(const T&) const { return *this; }
};
template <typename = void>
struct discard_iterator : detail::Facade<discard_iterator<>, Ignored, Ignored> {
  std::ptrdiff_t place = 0;
  explicit discard_iterator(std::ptrdiff_t place = 0) : place(place) {}
  Ignored at(std::ptrdiff_t) const { return {}; }
  void advance(std::ptrdiff_t n) { place += n; }
  std::ptrdiff_t distance_from(const discard_iterator& other) const { return place - other.place; }
};
inline discard_iterator<> make_discard_iterator() { return discard_iterator<>(); }

template <typename Iterators>
struct zip_iterator;
template <typename... Iterators>
struct zip_iterator<tuple<Iterators...>>
    : detail::Facade<zip_iterator<tuple<Iterators...>>, tuple<detail::ValueOf<Iterators>...>,
                     tuple<detail::ReferenceOf<Iterators>...>> {
  tuple<Iterators...> all;
  zip_iterator(tuple<Iterators...> all) : all(all) {}
  tuple<detail::ReferenceOf<Iterators>...> at(std::ptrdiff_t n) const {
    return std::apply([n](const auto&... one) { return tuple<detail::ReferenceOf<Iterators>...>(one[n]...); }, all);
  }
  void advance(std::ptrdiff_t n) {
    std::apply([n](auto&... one) { ((one += n), ...); }, all);
  }
  std::ptrdiff_t distance_from(const zip_iterator& other) const { return get<0>(all) - get<0>(other.all); }
  const tuple<Iterators...>& get_iterator_tuple() const { return all; }
};
template <typename... Iterators>
zip_iterator<tuple<Iterators...>> make_zip_iterator(tuple<Iterators...> all) { return {all}; }
template <typename... Iterators>
zip_iterator<tuple<Iterators...>> make_zip_iterator(Iterators... all) { return {tuple<Iterators...>(all...)}; }

// Calls a function of several values with a tuple of them.
template <typename Function>
struct zip_function {
  Function function;
  template <typename Tuple>
  decltype(auto) operator()(Tuple&& values) const { return std::apply(function, std::forward<Tuple>(values)); }
};
template <typename Function>
zip_function<Function> make_zip_function(Function function) { return {function}; }

namespace detail {

template <typename Iterator>
using RawOf = decltype(raw(std::declval<const Iterator&>()));

template <typename Function, typename Iterator, typename Reference, typename Value>
auto raw(const transform_iterator<Function, Iterator, Reference, Value>& at) {
  return transform_iterator<Function, RawOf<Iterator>, Reference, Value>(raw(at.base), at.function);
}
template <typename Elements, typename Indices>
auto raw(const permutation_iterator<Elements, Indices>& at) {
  return thrust::make_permutation_iterator(raw(at.elements), raw(at.indices));
}
template <typename Iterator>
auto raw(const reverse_iterator<Iterator>& at) { return thrust::make_reverse_iterator(raw(at.base)); }
template <typename... Iterators>
auto raw(const zip_iterator<tuple<Iterators...>>& at) {
  return std::apply([](const auto&... one) { return thrust::make_zip_iterator(raw(one)...); }, at.all);
}

template <typename Function, typename Iterator, typename Reference, typename Value>
constexpr bool kIsOnDevice<transform_iterator<Function, Iterator, Reference, Value>> = kIsOnDevice<Iterator>;
template <typename Elements, typename Indices>
constexpr bool kIsOnDevice<permutation_iterator<Elements, Indices>> = kIsOnDevice<Elements> || kIsOnDevice<Indices>;
template <typename Iterator>
constexpr bool kIsOnDevice<reverse_iterator<Iterator>> = kIsOnDevice<Iterator>;
template <typename... Iterators>
constexpr bool kIsOnDevice<zip_iterator<tuple<Iterators...>>> = (kIsOnDevice<Iterators> || ...);

}  // namespace detail

template <typename Iterator>
std::ptrdiff_t distance(Iterator first, Iterator last) { return last - first; }
template <typename Iterator>
void advance(Iterator& at, std::ptrdiff_t n) { at += n; }
template <typename Iterator>
Iterator next(Iterator at, std::ptrdiff_t n = 1) { return at + n; }

}  // namespace thrust

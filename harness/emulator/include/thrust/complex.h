// Thrust's complex numbers. The standard library's numbers compute them.
#pragma once

#include <complex>
#include <type_traits>

namespace thrust {

template <typename T>
struct complex : std::complex<T> {
  constexpr complex(const T& re = T(), const T& im = T()) : std::complex<T>(re, im) {}
  template <typename U>
  constexpr complex(const std::complex<U>& other) : std::complex<T>(T(other.real()), T(other.imag())) {}
  using std::complex<T>::operator=;
};

#define CUEMU_OPERATOR(op)                                                           \
  template <typename T>                                                              \
  constexpr complex<T> operator op(const complex<T>& left, const complex<T>& right) { \
    std::complex<T> result = left;                                                   \
    return result op## = right;                                                      \
  }                                                                                  \
  template <typename T>                                                              \
  constexpr complex<T> operator op(const complex<T>& left, const std::type_identity_t<T>& right) { \
    std::complex<T> result = left;                                                   \
    return result op## = right;                                                      \
  }                                                                                  \
  template <typename T>                                                              \
  constexpr complex<T> operator op(const std::type_identity_t<T>& left, const complex<T>& right) { \
    return complex<T>(left) op right;                                                \
  }
CUEMU_OPERATOR(+)
CUEMU_OPERATOR(-)
CUEMU_OPERATOR(*)
CUEMU_OPERATOR(/)
#undef CUEMU_OPERATOR

template <typename T> constexpr complex<T> operator+(const complex<T>& value) { return value; }
template <typename T> constexpr complex<T> operator-(const complex<T>& value) { return {-value.real(), -value.imag()}; }

#define CUEMU_FUNCTION(name) \
  template <typename T> complex<T> name(const complex<T>& value) { return std::name(static_cast<const std::complex<T>&>(value)); }
CUEMU_FUNCTION(acos) CUEMU_FUNCTION(acosh) CUEMU_FUNCTION(asin) CUEMU_FUNCTION(asinh) CUEMU_FUNCTION(atan)
CUEMU_FUNCTION(atanh) CUEMU_FUNCTION(conj) CUEMU_FUNCTION(cos) CUEMU_FUNCTION(cosh) CUEMU_FUNCTION(exp)
CUEMU_FUNCTION(log) CUEMU_FUNCTION(log10) CUEMU_FUNCTION(proj) CUEMU_FUNCTION(sin) CUEMU_FUNCTION(sinh)
CUEMU_FUNCTION(sqrt) CUEMU_FUNCTION(tan) CUEMU_FUNCTION(tanh)
#undef CUEMU_FUNCTION

template <typename T> T abs(const complex<T>& value) { return std::abs(static_cast<const std::complex<T>&>(value)); }
template <typename T> T arg(const complex<T>& value) { return std::arg(static_cast<const std::complex<T>&>(value)); }
template <typename T> constexpr T norm(const complex<T>& value) { return value.real() * value.real() + value.imag() * value.imag(); }
template <typename T> complex<T> polar(const T& length, const std::type_identity_t<T>& angle = T()) { return std::polar(length, angle); }

template <typename T>
complex<T> pow(const complex<T>& base, const complex<T>& exponent) {
  return std::pow(static_cast<const std::complex<T>&>(base), static_cast<const std::complex<T>&>(exponent));
}
template <typename T>
complex<T> pow(const complex<T>& base, const std::type_identity_t<T>& exponent) {
  return std::pow(static_cast<const std::complex<T>&>(base), exponent);
}
template <typename T>
complex<T> pow(const std::type_identity_t<T>& base, const complex<T>& exponent) {
  return std::pow(base, static_cast<const std::complex<T>&>(exponent));
}

}  // namespace thrust

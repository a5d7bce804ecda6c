// Device mathematics: CUDA's names for functions and conversions, in full precision.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

#include "line.h"
#include "vector_types.h"

// Real functions, not macros or std:: names, with CUDA's overloads for mixed integers.
#define CUEMU_EXTREMA(result, left_type, right_type)                                                        \
  constexpr result min(left_type left, right_type right) {                                                  \
    return static_cast<result>(left) < static_cast<result>(right) ? static_cast<result>(left) : static_cast<result>(right); \
  }                                                                                                         \
  constexpr result max(left_type left, right_type right) {                                                  \
    return static_cast<result>(left) > static_cast<result>(right) ? static_cast<result>(left) : static_cast<result>(right); \
  }
CUEMU_EXTREMA(int, int, int)
CUEMU_EXTREMA(unsigned int, unsigned int, unsigned int)
CUEMU_EXTREMA(unsigned int, int, unsigned int)
CUEMU_EXTREMA(unsigned int, unsigned int, int)
CUEMU_EXTREMA(long, long, long)
CUEMU_EXTREMA(unsigned long, unsigned long, unsigned long)
CUEMU_EXTREMA(unsigned long, long, unsigned long)
CUEMU_EXTREMA(unsigned long, unsigned long, long)
CUEMU_EXTREMA(long long, long long, long long)
CUEMU_EXTREMA(unsigned long long, unsigned long long, unsigned long long)
CUEMU_EXTREMA(unsigned long long, long long, unsigned long long)
CUEMU_EXTREMA(unsigned long long, unsigned long long, long long)
#undef CUEMU_EXTREMA
// These behave like the library's fminf() and fmaxf(): with a number and a NaN they return the
// number. They are written out because a library call keeps a loop from being vectorised. The
// rewriter makes kernels call them.
constexpr float cuemu_fminf(float left, float right) { return left < right || right != right ? left : right; }
constexpr float cuemu_fmaxf(float left, float right) { return left > right || right != right ? left : right; }
inline float min(float left, float right) { return cuemu_fminf(left, right); }
inline float max(float left, float right) { return cuemu_fmaxf(left, right); }
inline double min(double left, double right) { return ::fmin(left, right); }
inline double max(double left, double right) { return ::fmax(left, right); }
inline double min(float left, double right) { return ::fmin(static_cast<double>(left), right); }
inline double max(float left, double right) { return ::fmax(static_cast<double>(left), right); }
inline double min(double left, float right) { return ::fmin(left, static_cast<double>(right)); }
inline double max(double left, float right) { return ::fmax(left, static_cast<double>(right)); }
inline unsigned umin(unsigned left, unsigned right) { return left < right ? left : right; }
inline unsigned umax(unsigned left, unsigned right) { return left > right ? left : right; }
inline long long llmin(long long left, long long right) { return left < right ? left : right; }
inline long long llmax(long long left, long long right) { return left > right ? left : right; }
inline unsigned long long ullmin(unsigned long long left, unsigned long long right) { return left < right ? left : right; }
inline unsigned long long ullmax(unsigned long long left, unsigned long long right) { return left > right ? left : right; }

namespace cuemu {
double inverse_erf(double x);
double inverse_erfc(double x);
double scaled_erfc(double x);
double bessel_i0(double x);
double bessel_i1(double x);
template <typename To, typename From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

enum class Rounding { nearest, zero, up, down };

template <Rounding rounding, typename Real>
inline Real round_to_integer(Real x) {
  if constexpr (rounding == Rounding::zero) return std::trunc(x);
  else if constexpr (rounding == Rounding::up) return std::ceil(x);
  else if constexpr (rounding == Rounding::down) return std::floor(x);
  else return std::nearbyint(x);
}

// Converts as the hardware does: a value out of range gives the nearest end, and NaN gives 0 (or
// the 64-bit indefinite value).
template <typename Integer, Rounding rounding, typename Real>
inline Integer to_integer(Real x) {
  using Limits = std::numeric_limits<Integer>;
  if (x != x) return sizeof(Integer) == 8 ? static_cast<Integer>(1ull << 63) : Integer{0};
  const Real rounded = round_to_integer<rounding>(x);
  if (rounded <= static_cast<Real>(Limits::min())) return Limits::min();
  if (rounded >= static_cast<Real>(Limits::max())) return Limits::max();
  return static_cast<Integer>(rounded);
}

// Evaluates `compute()` under a rounding direction. It is not inlined, so that the compiler cannot
// move the computation out.
template <Rounding rounding, typename Compute>
__attribute__((noinline)) auto rounded(Compute compute) {
  if constexpr (rounding == Rounding::nearest) {
    return compute();
  } else {
    const int before = std::fegetround();
    std::fesetround(rounding == Rounding::zero ? FE_TOWARDZERO : rounding == Rounding::up ? FE_UPWARD : FE_DOWNWARD);
    const auto result = compute();
    std::fesetround(before);
    return result;
  }
}
}  // namespace cuemu

inline float rsqrtf(float x) { return static_cast<float>(1.0 / ::sqrt(static_cast<double>(x))); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / ::cbrtf(x); }
inline double rcbrt(double x) { return 1.0 / ::cbrt(x); }
inline float normcdff(float x) { return static_cast<float>(0.5 * ::erfc(-static_cast<double>(x) * 0.70710678118654752440)); }
inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752440); }
inline double normcdfinv(double p) { return -1.41421356237309504880 * ::cuemu::inverse_erfc(2 * p); }
inline float normcdfinvf(float p) { return static_cast<float>(normcdfinv(p)); }
inline double erfinv(double x) { return ::cuemu::inverse_erf(x); }
inline float erfinvf(float x) { return static_cast<float>(::cuemu::inverse_erf(x)); }
inline double erfcinv(double x) { return ::cuemu::inverse_erfc(x); }
inline float erfcinvf(float x) { return static_cast<float>(::cuemu::inverse_erfc(x)); }
inline double erfcx(double x) { return ::cuemu::scaled_erfc(x); }
inline float erfcxf(float x) { return static_cast<float>(::cuemu::scaled_erfc(x)); }
inline double sinpi(double x) { return ::sin(3.14159265358979323846 * ::remainder(x, 2.0)); }
inline double cospi(double x) { return ::cos(3.14159265358979323846 * ::remainder(x, 2.0)); }
inline float sinpif(float x) { return static_cast<float>(sinpi(x)); }
inline float cospif(float x) { return static_cast<float>(cospi(x)); }
inline void sincospi(double x, double* sine, double* cosine) { *sine = sinpi(x); *cosine = cospi(x); }
inline void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x); *cosine = cospif(x); }
inline float rhypotf(float x, float y) { return 1.0f / ::hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
inline double norm3d(double x, double y, double z) { return std::hypot(x, y, z); }
inline float norm3df(float x, float y, float z) { return std::hypot(x, y, z); }
inline float rnorm3df(float x, float y, float z) { return 1.0f / norm3df(x, y, z); }
inline double norm4d(double x, double y, double z, double w) { return ::hypot(std::hypot(x, y, z), w); }
inline float norm4df(float x, float y, float z, float w) { return static_cast<float>(norm4d(x, y, z, w)); }
inline double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
inline double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
inline float rnorm4df(float x, float y, float z, float w) { return static_cast<float>(rnorm4d(x, y, z, w)); }
CUEMU_INLINE double norm(int dimensions, const double* values) {
  double found = 0.0;
  for (int i = 0; i < dimensions; ++i) found = ::hypot(found, values[i]);
  return found;
}
CUEMU_INLINE float normf(int dimensions, const float* values) {
  double found = 0.0;
  for (int i = 0; i < dimensions; ++i) found = ::hypot(found, static_cast<double>(values[i]));
  return static_cast<float>(found);
}
CUEMU_INLINE double rnorm(int dimensions, const double* values) { return 1.0 / norm(dimensions, values); }
CUEMU_INLINE float rnormf(int dimensions, const float* values) { return 1.0f / normf(dimensions, values); }
inline double cyl_bessel_i0(double x) { return ::cuemu::bessel_i0(x); }
inline float cyl_bessel_i0f(float x) { return static_cast<float>(::cuemu::bessel_i0(x)); }
inline double cyl_bessel_i1(double x) { return ::cuemu::bessel_i1(x); }
inline float cyl_bessel_i1f(float x) { return static_cast<float>(::cuemu::bessel_i1(x)); }
inline float fdividef(float x, float y) { return x / y; }
inline float fdivide(float x, float y) { return x / y; }
inline double fdivide(double x, double y) { return x / y; }

// CUDA has these names also for float, unlike the C library.
#define CUEMU_SINGLE(name) inline float name(float x) { return name##f(x); }
CUEMU_SINGLE(sinpi)
CUEMU_SINGLE(cospi)
CUEMU_SINGLE(exp10)
CUEMU_SINGLE(rcbrt)
CUEMU_SINGLE(erfinv)
CUEMU_SINGLE(erfcinv)
CUEMU_SINGLE(erfcx)
CUEMU_SINGLE(normcdf)
CUEMU_SINGLE(normcdfinv)
CUEMU_SINGLE(cyl_bessel_i0)
CUEMU_SINGLE(cyl_bessel_i1)
CUEMU_SINGLE(j0)
CUEMU_SINGLE(j1)
CUEMU_SINGLE(y0)
CUEMU_SINGLE(y1)
#undef CUEMU_SINGLE
inline float jn(int order, float x) { return jnf(order, x); }
inline float yn(int order, float x) { return ynf(order, x); }
inline void sincos(float x, float* sine, float* cosine) { ::sincosf(x, sine, cosine); }
inline void sincospi(float x, float* sine, float* cosine) { sincospif(x, sine, cosine); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// The fast intrinsics, with full precision; but the power of a negative base is no number, as by its definition.
inline float __fdividef(float x, float y) { return x / y; }
inline float __expf(float x) { return ::expf(x); }
inline float __exp10f(float x) { return static_cast<float>(::pow(10.0, x)); }
inline float __logf(float x) { return ::logf(x); }
inline float __log2f(float x) { return ::log2f(x); }
inline float __log10f(float x) { return ::log10f(x); }
inline float __powf(float x, float y) { return x < 0.0f ? __builtin_nanf("") : ::powf(x, y); }
inline float __sinf(float x) { return ::sinf(x); }
inline float __cosf(float x) { return ::cosf(x); }
inline float __tanf(float x) { return ::tanf(x); }
inline float __tanhf(float x) { return ::tanhf(x); }
inline void __sincosf(float x, float* sine, float* cosine) { *sine = ::sinf(x); *cosine = ::cosf(x); }
inline float __frsqrt_rn(float x) { return rsqrtf(x); }

#define CUEMU_ROUNDED(suffix, rounding)                                                                             \
  inline float __fadd_##suffix(float x, float y) { return ::cuemu::rounded<rounding>([=] { return x + y; }); }      \
  inline float __fsub_##suffix(float x, float y) { return ::cuemu::rounded<rounding>([=] { return x - y; }); }      \
  inline float __fmul_##suffix(float x, float y) { return ::cuemu::rounded<rounding>([=] { return x * y; }); }      \
  inline float __fdiv_##suffix(float x, float y) { return ::cuemu::rounded<rounding>([=] { return x / y; }); }      \
  inline float __frcp_##suffix(float x) { return ::cuemu::rounded<rounding>([=] { return 1.0f / x; }); }            \
  inline float __fsqrt_##suffix(float x) { return ::cuemu::rounded<rounding>([=] { return ::sqrtf(x); }); }         \
  inline float __fmaf_##suffix(float x, float y, float z) {                                                         \
    return ::cuemu::rounded<rounding>([=] { return ::fmaf(x, y, z); });                                             \
  }                                                                                                                 \
  inline float __fmaf_ieee_##suffix(float x, float y, float z) { return __fmaf_##suffix(x, y, z); }                   \
  inline double __dadd_##suffix(double x, double y) { return ::cuemu::rounded<rounding>([=] { return x + y; }); }   \
  inline double __dsub_##suffix(double x, double y) { return ::cuemu::rounded<rounding>([=] { return x - y; }); }   \
  inline double __dmul_##suffix(double x, double y) { return ::cuemu::rounded<rounding>([=] { return x * y; }); }   \
  inline double __ddiv_##suffix(double x, double y) { return ::cuemu::rounded<rounding>([=] { return x / y; }); }   \
  inline double __drcp_##suffix(double x) { return ::cuemu::rounded<rounding>([=] { return 1.0 / x; }); }           \
  inline double __dsqrt_##suffix(double x) { return ::cuemu::rounded<rounding>([=] { return ::sqrt(x); }); }        \
  inline double __fma_##suffix(double x, double y, double z) {                                                      \
    return ::cuemu::rounded<rounding>([=] { return ::fma(x, y, z); });                                              \
  }                                                                                                                 \
  inline float __double2float_##suffix(double x) {                                                                  \
    return ::cuemu::rounded<rounding>([=] { return static_cast<float>(x); });                                       \
  }                                                                                                                 \
  inline float __int2float_##suffix(int x) {                                                                        \
    return ::cuemu::rounded<rounding>([=] { return static_cast<float>(x); });                                       \
  }                                                                                                                 \
  inline float __uint2float_##suffix(unsigned x) {                                                                  \
    return ::cuemu::rounded<rounding>([=] { return static_cast<float>(x); });                                       \
  }                                                                                                                 \
  inline float __ll2float_##suffix(long long x) {                                                                   \
    return ::cuemu::rounded<rounding>([=] { return static_cast<float>(x); });                                       \
  }                                                                                                                 \
  inline float __ull2float_##suffix(unsigned long long x) {                                                         \
    return ::cuemu::rounded<rounding>([=] { return static_cast<float>(x); });                                       \
  }                                                                                                                 \
  inline double __ll2double_##suffix(long long x) {                                                                 \
    return ::cuemu::rounded<rounding>([=] { return static_cast<double>(x); });                                      \
  }                                                                                                                 \
  inline double __ull2double_##suffix(unsigned long long x) {                                                       \
    return ::cuemu::rounded<rounding>([=] { return static_cast<double>(x); });                                      \
  }                                                                                                                 \
  inline int __float2int_##suffix(float x) { return ::cuemu::to_integer<int, rounding>(x); }                        \
  inline unsigned __float2uint_##suffix(float x) { return ::cuemu::to_integer<unsigned, rounding>(x); }             \
  inline long long __float2ll_##suffix(float x) { return ::cuemu::to_integer<long long, rounding>(x); }             \
  inline unsigned long long __float2ull_##suffix(float x) {                                                         \
    return ::cuemu::to_integer<unsigned long long, rounding>(x);                                                    \
  }                                                                                                                 \
  inline int __double2int_##suffix(double x) { return ::cuemu::to_integer<int, rounding>(x); }                      \
  inline unsigned __double2uint_##suffix(double x) { return ::cuemu::to_integer<unsigned, rounding>(x); }           \
  inline long long __double2ll_##suffix(double x) { return ::cuemu::to_integer<long long, rounding>(x); }           \
  inline unsigned long long __double2ull_##suffix(double x) {                                                       \
    return ::cuemu::to_integer<unsigned long long, rounding>(x);                                                    \
  }
CUEMU_ROUNDED(rn, ::cuemu::Rounding::nearest)
CUEMU_ROUNDED(rz, ::cuemu::Rounding::zero)
CUEMU_ROUNDED(ru, ::cuemu::Rounding::up)
CUEMU_ROUNDED(rd, ::cuemu::Rounding::down)
#undef CUEMU_ROUNDED
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

inline int __float_as_int(float x) { return ::cuemu::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return ::cuemu::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return ::cuemu::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return ::cuemu::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return ::cuemu::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return ::cuemu::bit_cast<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                                                     static_cast<unsigned>(low)));
}

inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
  return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __mul24(int x, int y) {
  const long long left = static_cast<int>(static_cast<unsigned>(x) << 8) >> 8;
  const long long right = static_cast<int>(static_cast<unsigned>(y) << 8) >> 8;
  return static_cast<int>(left * right);
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline unsigned __sad(int x, int y, unsigned z) {
  const long long difference = static_cast<long long>(x) - y;
  return z + static_cast<unsigned>(difference < 0 ? -difference : difference);
}
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
inline int __hadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y) >> 1); }
inline int __rhadd(int x, int y) { return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1); }
inline unsigned __uhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline unsigned __urhadd(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}
inline int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 4; ++i) sum += static_cast<signed char>(x >> 8 * i) * static_cast<signed char>(y >> 8 * i);
  return sum;
}
inline unsigned __dp4a(unsigned x, unsigned y, unsigned sum) {
  for (int i = 0; i < 4; ++i) sum += (x >> 8 * i & 0xffu) * (y >> 8 * i & 0xffu);
  return sum;
}
inline int __dp4a(char4 x, char4 y, int sum) { return sum + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w; }
inline unsigned __dp4a(uchar4 x, uchar4 y, unsigned sum) {
  return sum + static_cast<unsigned>(x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w);
}
// The product of two 16-bit values with two of the four bytes of another word.
#define CUEMU_HALF_PRODUCT(half, first, second, low, high)                                                         \
  inline int __dp2a_##half(short2 x, char4 y, int sum) { return sum + x.x * y.low + x.y * y.high; }                \
  inline unsigned __dp2a_##half(ushort2 x, uchar4 y, unsigned sum) {                                               \
    return sum + static_cast<unsigned>(x.x * y.low) + static_cast<unsigned>(x.y * y.high);                         \
  }                                                                                                                \
  inline int __dp2a_##half(int x, int y, int sum) {                                                                \
    return sum + static_cast<short>(x) * static_cast<signed char>(y >> first) +                                    \
           static_cast<short>(x >> 16) * static_cast<signed char>(y >> second);                                    \
  }                                                                                                                \
  inline unsigned __dp2a_##half(unsigned x, unsigned y, unsigned sum) {                                            \
    return sum + (x & 0xffffu) * (y >> first & 0xffu) + (x >> 16) * (y >> second & 0xffu);                         \
  }
CUEMU_HALF_PRODUCT(lo, 0, 8, x, y)
CUEMU_HALF_PRODUCT(hi, 16, 24, z, w)
#undef CUEMU_HALF_PRODUCT
inline unsigned short __nv_bswap16(unsigned short x) { return __builtin_bswap16(x); }
inline unsigned __nv_bswap32(unsigned x) { return __builtin_bswap32(x); }
inline unsigned long long __nv_bswap64(unsigned long long x) { return __builtin_bswap64(x); }

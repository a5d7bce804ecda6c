// CUDA's floats of 8 bits: e4m3, which has no infinity, and e5m2.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

namespace cuemu {

// A format of 8 bits: its bits of significand behind the point, its least normal exponent, its largest number, and what
// lies beyond that.
struct TinyFormat {
  int digits, least;
  double largest;
  unsigned char largest_bits, overflow_bits;
};

inline constexpr TinyFormat kE4m3{3, -6, 448.0, 0x7e, 0x7f}, kE5m2{2, -14, 57344.0, 0x7b, 0x7c};

inline const TinyFormat& tiny_format(__nv_fp8_interpretation_t kind) { return kind == __NV_E4M3 ? kE4m3 : kE5m2; }

// Rounds to the nearest, ties to even.
inline unsigned char narrow_tiny(double value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  const TinyFormat& format = tiny_format(kind);
  if (value != value) return 0x7f;
  const unsigned char sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(value);
  const int exponent = magnitude < std::ldexp(1.0, format.least) ? format.least : std::ilogb(magnitude);
  const double step = std::ldexp(1.0, exponent - format.digits);
  const double units = magnitude > 2 * format.largest ? magnitude : std::nearbyint(magnitude / step);
  if (magnitude > 2 * format.largest || units * step > format.largest) {
    return sign | (saturate == __NV_SATFINITE ? format.largest_bits : format.overflow_bits);
  }
  // The bits of a number are its units above those of the binade below.
  return sign | static_cast<unsigned char>(((exponent - format.least) << format.digits) + static_cast<int>(units));
}

inline float widen_tiny(unsigned char bits, __nv_fp8_interpretation_t kind) {
  if (kind == __NV_E5M2) return HalfBits::widen(static_cast<unsigned short>(bits << 8));
  const int exponent = bits >> 3 & 15, digits = bits & 7;
  if (exponent == 15 && digits == 7) return bit_cast<float>(0x7fffffffu);
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(digits), -9)
                                        : std::ldexp(static_cast<float>(8 + digits), exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

}  // namespace cuemu

inline __nv_fp8_storage_t __nv_cvt_double_to_fp8(
    double value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  if (value == value) return ::cuemu::narrow_tiny(value, saturate, kind);
  // There is no instruction for it. CUDA's own code keeps a NaN's sign, and for e5m2 a bit of what it holds.
  const std::uint64_t bits = ::cuemu::bit_cast<std::uint64_t>(value);
  return static_cast<unsigned char>((bits >> 56 & 0x80) | (kind == __NV_E4M3 ? 0x7f : 0x7e | (bits >> 50 & 1)));
}
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(
    float value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return ::cuemu::narrow_tiny(value, saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(
    __half_raw value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return ::cuemu::narrow_tiny(::cuemu::HalfBits::widen(value.x), saturate, kind);
}
inline __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(
    __nv_bfloat16_raw value, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {
  return ::cuemu::narrow_tiny(::cuemu::BfloatBits::widen(value.x), saturate, kind);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t bits, __nv_fp8_interpretation_t kind) {
  return {::cuemu::HalfBits::narrow(::cuemu::widen_tiny(bits, kind))};
}

// The same for pairs: the first number is in the low byte.
#define CUEMU_PAIR_OF(name, pair, one)                                                          \
  inline __nv_fp8x2_storage_t name(                                                             \
      pair values, __nv_saturation_t saturate, __nv_fp8_interpretation_t kind) {                \
    return static_cast<__nv_fp8x2_storage_t>(one({values.x}, saturate, kind) | one({values.y}, saturate, kind) << 8); \
  }
CUEMU_PAIR_OF(__nv_cvt_double2_to_fp8x2, double2, __nv_cvt_double_to_fp8)
CUEMU_PAIR_OF(__nv_cvt_float2_to_fp8x2, float2, __nv_cvt_float_to_fp8)
CUEMU_PAIR_OF(__nv_cvt_halfraw2_to_fp8x2, __half2_raw, __nv_cvt_halfraw_to_fp8)
CUEMU_PAIR_OF(__nv_cvt_bfloat16raw2_to_fp8x2, __nv_bfloat162_raw, __nv_cvt_bfloat16raw_to_fp8)
#undef CUEMU_PAIR_OF
inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t bits, __nv_fp8_interpretation_t kind) {
  return {__nv_cvt_fp8_to_halfraw(bits & 0xff, kind).x, __nv_cvt_fp8_to_halfraw(bits >> 8, kind).x};
}

#define CUEMU_FROM(name, type) \
  explicit name(type value) : __x(::cuemu::narrow_tiny(static_cast<float>(value), __NV_SATFINITE, kKind)) {}
#define CUEMU_TO(type) \
  explicit operator type() const { return ::cuemu::to_integer<type, ::cuemu::Rounding::zero>(float(*this)); }
#define CUEMU_FLOATS(name, pair, four, kind)                                                                   \
  struct name {                                                                                                \
    static constexpr __nv_fp8_interpretation_t kKind = kind;                                                   \
    __nv_fp8_storage_t __x;                                                                                    \
    name() = default;                                                                                          \
    explicit name(double value) : __x(__nv_cvt_double_to_fp8(value, __NV_SATFINITE, kKind)) {}                 \
    explicit name(__half value) : __x(__nv_cvt_halfraw_to_fp8(value, __NV_SATFINITE, kKind)) {}                \
    explicit name(__nv_bfloat16 value) : __x(__nv_cvt_bfloat16raw_to_fp8(value, __NV_SATFINITE, kKind)) {}     \
    CUEMU_FROM(name, float)                                                                                    \
    CUEMU_FROM(name, short)                                                                                    \
    CUEMU_FROM(name, unsigned short)                                                                           \
    CUEMU_FROM(name, int)                                                                                      \
    CUEMU_FROM(name, unsigned)                                                                                 \
    CUEMU_FROM(name, long)                                                                                     \
    CUEMU_FROM(name, unsigned long)                                                                            \
    CUEMU_FROM(name, long long)                                                                                \
    CUEMU_FROM(name, unsigned long long)                                                                       \
    explicit operator float() const { return ::cuemu::widen_tiny(__x, kKind); }                                \
    explicit operator double() const { return float(*this); }                                                  \
    explicit operator __half() const { return __float2half(float(*this)); }                                    \
    explicit operator __nv_bfloat16() const { return __float2bfloat16(float(*this)); }                         \
    explicit operator bool() const { return (__x & 0x7f) != 0; }                                               \
    CUEMU_TO(char)                                                                                             \
    CUEMU_TO(signed char)                                                                                      \
    CUEMU_TO(unsigned char)                                                                                    \
    CUEMU_TO(short)                                                                                            \
    CUEMU_TO(unsigned short)                                                                                   \
    CUEMU_TO(int)                                                                                              \
    CUEMU_TO(unsigned)                                                                                         \
    CUEMU_TO(long)                                                                                             \
    CUEMU_TO(unsigned long)                                                                                    \
    CUEMU_TO(long long)                                                                                        \
    CUEMU_TO(unsigned long long)                                                                               \
  };                                                                                                           \
  struct alignas(2) pair {                                                                                     \
    __nv_fp8x2_storage_t __x;                                                                                  \
    pair() = default;                                                                                          \
    explicit pair(__half2 values) : __x(__nv_cvt_halfraw2_to_fp8x2(values, __NV_SATFINITE, kind)) {}           \
    explicit pair(__nv_bfloat162 values) : __x(__nv_cvt_bfloat16raw2_to_fp8x2(values, __NV_SATFINITE, kind)) {} \
    explicit pair(double2 values) : __x(__nv_cvt_double2_to_fp8x2(values, __NV_SATFINITE, kind)) {}            \
    explicit pair(float2 values) : __x(__nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, kind)) {}              \
    explicit operator __half2() const { return __nv_cvt_fp8x2_to_halfraw2(__x, kind); }                        \
    explicit operator float2() const {                                                                         \
      return {::cuemu::widen_tiny(__x & 0xff, kind), ::cuemu::widen_tiny(__x >> 8, kind)};                     \
    }                                                                                                          \
  };                                                                                                           \
  struct alignas(4) four {                                                                                     \
    __nv_fp8x4_storage_t __x;                                                                                  \
    four() = default;                                                                                          \
    explicit four(__half2 low, __half2 high) : four(pair(low), pair(high)) {}                                  \
    explicit four(__nv_bfloat162 low, __nv_bfloat162 high) : four(pair(low), pair(high)) {}                    \
    explicit four(double4 v) : four(pair(double2{v.x, v.y}), pair(double2{v.z, v.w})) {}                       \
    explicit four(float4 v) : four(pair(float2{v.x, v.y}), pair(float2{v.z, v.w})) {}                          \
    explicit operator float4() const {                                                                         \
      return {::cuemu::widen_tiny(__x & 0xff, kind), ::cuemu::widen_tiny(__x >> 8 & 0xff, kind),               \
              ::cuemu::widen_tiny(__x >> 16 & 0xff, kind), ::cuemu::widen_tiny(__x >> 24, kind)};              \
    }                                                                                                          \
   private:                                                                                                    \
    four(pair low, pair high) : __x(static_cast<unsigned>(low.__x) | static_cast<unsigned>(high.__x) << 16) {} \
  };
CUEMU_FLOATS(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
CUEMU_FLOATS(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef CUEMU_FLOATS
#undef CUEMU_FROM
#undef CUEMU_TO

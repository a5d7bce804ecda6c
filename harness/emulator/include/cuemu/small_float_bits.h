// Conversions between float or double and 16-bit formats, correctly rounded.
#pragma once

#include <cstdint>

#include "math.h"

namespace cuemu {

// NaN becomes 0x7fff in both formats, as on the hardware.
constexpr unsigned short kSmallNan = 0x7fff;

struct HalfBits {
  static float widen(unsigned short bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ff) << 13);
    if (magnitude >= 0x0400) return bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
    return bit_cast<float>(sign | bit_cast<std::uint32_t>(subnormal));
  }

  static unsigned short narrow(float value) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const unsigned short sign = static_cast<unsigned short>(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000u) return kSmallNan;
    if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00);
    if (magnitude >= 0x38800000u) {
      const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
      return static_cast<unsigned short>(sign | (rounded - 0x38000000u) >> 13);
    }
    // Below the normal range, the sum with 0.5 has the same last place as the result, so the
    // addition rounds correctly.
    const float aligned = bit_cast<float>(magnitude) + 0.5f;
    return static_cast<unsigned short>(sign | (bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
  }
};

struct BfloatBits {
  static float widen(unsigned short bits) { return bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  static unsigned short narrow(float value) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return kSmallNan;
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

// Returns a float next to `value` whose odd last bit records an inexact conversion. A second
// rounding then gives the same result as a single one.
inline float odd_float(double value) {
  float nearest = static_cast<float>(value);
  if (nearest != nearest || static_cast<double>(nearest) == value) return nearest;
  const double distance = static_cast<double>(nearest) - value;
  std::uint32_t bits = bit_cast<std::uint32_t>(nearest);
  if ((distance > 0) == (value > 0)) --bits;  // towards zero
  return bit_cast<float>(bits | 1);
}

// Returns left + right, with an odd last bit if the sum is inexact.
inline double odd_sum(double left, double right) {
  const double sum = left + right;
  const double right_part = sum - left;
  const double lost = (left - (sum - right_part)) + (right - right_part);
  if (lost == 0.0 || !(lost == lost)) return sum;
  std::uint64_t bits = bit_cast<std::uint64_t>(sum);
  if (bits % 2 == 0) bits += (lost > 0) == (sum > 0) ? 1 : -1;
  return bit_cast<double>(bits);
}

template <typename Format>
inline unsigned short narrow_double(double value) { return Format::narrow(odd_float(value)); }

template <typename Format>
inline unsigned short narrow_fma(float x, float y, float z) {
  return narrow_double<Format>(odd_sum(static_cast<double>(x) * y, z));
}

// Rounds in a given direction: takes the nearest value, and steps from there if it lies on the
// wrong side.
template <typename Format, Rounding rounding>
inline unsigned short narrow_towards(float value) {
  const unsigned short nearest = Format::narrow(value);
  const float there = Format::widen(nearest);
  if (rounding == Rounding::nearest || there == value || value != value) return nearest;
  const bool too_high = there > value;
  const bool wrong = rounding == Rounding::zero ? too_high == (value > 0) : rounding == Rounding::down ? too_high : !too_high;
  if (!wrong) return nearest;
  const unsigned short magnitude = nearest & 0x7fff;
  const unsigned short sign = nearest & 0x8000;
  const bool shrink = too_high == (sign == 0);
  if (magnitude == 0 && shrink) return static_cast<unsigned short>((sign ^ 0x8000) | 1);
  return static_cast<unsigned short>(sign | (shrink ? magnitude - 1 : magnitude + 1));
}

// Rounds an integer. The 24 leading bits are enough, if the last of them records whether others are set.
template <typename Format, Rounding rounding, typename Integer>
inline unsigned short narrow_integer(Integer value) {
  const bool is_negative = value < 0;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if (is_negative) magnitude = 0 - magnitude;
  int shift = 0;
  for (; magnitude >> 24 != 0; ++shift) magnitude = magnitude >> 1 | (magnitude & 1);
  const float leading = std::ldexp(static_cast<float>(magnitude), shift);
  return narrow_towards<Format, rounding>(is_negative ? -leading : leading);
}

template <typename Small>
Small narrow(float value);  // each 16-bit type has its own

}  // namespace cuemu

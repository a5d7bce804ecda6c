// Sums of products as the tensor cores of Hopper make them. tests/emulator/tensor_core_sums.py measures how: on an H100
// its results have these bits.
#include "tensor_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

namespace cuemu {
namespace {

typedef float Floats __attribute__((vector_size(16)));
typedef std::int32_t Ints __attribute__((vector_size(16)));
typedef std::int16_t Shorts __attribute__((vector_size(16)));

constexpr int kColumns = 8;  // sums that sum_row computes together
constexpr int kMostInMatrix = 32 * 256;
constexpr std::int16_t kOfZero = -8192;  // stands for a zero's exponent; two of them still fit in 16 bits
constexpr int kNotFinite = 128;          // the exponent of infinities and NaN
// Where the exponents of products and addends lie within plus and minus this, floats hold the products and the scaled
// products exactly.
constexpr int kMostExponent = 100;

template <typename Vector, typename Element>
Vector load(const Element* from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23); }

// The least and the largest exponent of a matrix's numbers other than zero.
struct Range {
  int low = kNotFinite, high = kOfZero;
};
// Writes each number's exponent, at least `least`, and kOfZero for zeros. Returns their range, in which subnormal numbers
// count with their own exponent.
Range exponents(const float* values, int count, int least, std::int16_t* to) {
  Range range;
  for (int i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu;
    int own = static_cast<int>(bits >> 23) - 127;
    to[i] = static_cast<std::int16_t>(bits == 0 ? kOfZero : std::max(own, least));
    if (bits == 0) continue;
    if (own == -127) own = std::ilogb(values[i]);
    range.low = std::min(range.low, own);
    range.high = std::max(range.high, own);
  }
  return range;
}

// Cuts an integer's lower bits off, so that a leading one and `kept_bits` are left.
std::uint64_t cut(std::uint64_t magnitude, const TensorCore& core) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(magnitude)) - 1 - core.kept_bits);
  const std::uint64_t kept = magnitude >> shift << shift;
  return core.to_odd && kept != magnitude ? kept | std::uint64_t{1} << shift : kept;
}

// Returns the sum if it is infinite or NaN; zero if all numbers are finite.
float not_finite(int k, const float* left, const float* right, int step, float addend) {
  double plain = addend;
  bool is_finite = std::isfinite(addend);
  for (int depth = 0; depth < k; ++depth) {
    plain += static_cast<double>(left[depth]) * right[depth * step];
    is_finite = is_finite && std::isfinite(left[depth]) && std::isfinite(right[depth * step]);
  }
  if (is_finite) return 0.0f;
  return std::isnan(plain) ? kTensorNan : static_cast<float>(plain);
}

// One sum of finite numbers, whatever their exponents are.
float sum_of(const TensorCore& core, int k, const float* left, const std::int16_t* left_exponents, const float* right,
             const std::int16_t* right_exponents, int step, float addend, int exponent_of_addend) {
  int top = exponent_of_addend;
  for (int depth = 0; depth < k; ++depth) {
    top = std::max<int>(top, left_exponents[depth] + right_exponents[depth * step]);
  }
  if (top < kOfZero / 2) return 0.0f;
  const int unit = core.fraction_bits - top;
  const double scale = std::ldexp(1.0, unit);
  // Conversion to an integer cuts bits off.
  auto total = static_cast<std::int64_t>(addend * scale);
  for (int depth = 0; depth < k; ++depth) {
    total += static_cast<std::int64_t>(static_cast<double>(left[depth]) * right[depth * step] * scale);
  }
  auto magnitude = static_cast<std::uint64_t>(total < 0 ? -total : total);
  const int below = -149 + unit;  // bits below float's least subnormal number
  if (below >= 64) return 0.0f;
  if (below > 0) magnitude = magnitude >> below << below;
  const double value = std::ldexp(static_cast<double>(cut(magnitude, core)), -unit);
  return static_cast<float>(total < 0 ? -value : value);
}

// The values of a format of 8 bits with so many bits of exponent; e4m3 has no infinities.
std::array<float, 256> small_values(int exponent_bits) {
  std::array<float, 256> values{};
  const int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
    float value = std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits)),
                             std::max(exponent, 1) - bias - mantissa_bits);
    if (exponent_bits == 5 && exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
    if (exponent_bits == 4 && (bits & 127) == 127) value = NAN;
    values[static_cast<std::size_t>(bits)] = (bits & 128) != 0 ? -value : value;
  }
  return values;
}

// Eight sums side by side in one row, where all numbers are within kMostExponent.
void sum_row(const TensorCore& core, int n, int k, const float* left, const std::int16_t* left_exponents,
             const float* right, const std::int16_t* right_exponents, const std::int16_t* exponents_of_sums, float* sums) {
  Shorts top = load<Shorts>(exponents_of_sums);
  for (int depth = 0; depth < k; ++depth) {
    const Shorts exponent = load<Shorts>(right_exponents + depth * n) + left_exponents[depth];
    top = exponent > top ? exponent : top;
  }
  float scales[kColumns], units[kColumns];
  for (int i = 0; i < kColumns; ++i) {
    const int exponent = std::max<int>(top[i], -kMostExponent);  // of zeros alone any will do
    scales[i] = power_of_two(core.fraction_bits - exponent);
    units[i] = power_of_two(exponent - core.fraction_bits);
  }
  const Floats near_scale = load<Floats>(scales), far_scale = load<Floats>(scales + 4);
  const auto truncated = [](Floats values) { return __builtin_convertvector(values, Ints); };
  // A product has a magnitude below 2^(fraction_bits + 2). With 25 bits k is at most 16, so that an accumulator gets eight
  // products and the addend; k = 32 comes with 13 bits.
  Ints near[2] = {truncated(load<Floats>(sums) * near_scale), {}}, far[2] = {truncated(load<Floats>(sums + 4) * far_scale), {}};
  for (int depth = 0; depth < k; ++depth) {
    if (left[depth] == 0.0f) continue;
    near[depth % 2] += truncated(left[depth] * load<Floats>(right + depth * n) * near_scale);
    far[depth % 2] += truncated(left[depth] * load<Floats>(right + depth * n + 4) * far_scale);
  }
  for (int i = 0; i < kColumns; ++i) {
    const Ints* const halves = i < 4 ? near : far;
    const std::int64_t total = std::int64_t{halves[0][i % 4]} + halves[1][i % 4];
    const auto magnitude = static_cast<float>(cut(static_cast<std::uint64_t>(total < 0 ? -total : total), core));
    sums[i] = (total < 0 ? -magnitude : magnitude) * units[i];
  }
}

}  // namespace

TensorCore tensor_core(Element left, Element right, Element sum, bool is_warpgroup) {
  // A warp's factors of 8 bits become halves before.
  const auto least = [=](Element factor) {
    if (bytes_of(factor) == 1) return is_warpgroup && factor == Element::e4m3 ? -6 : -14;
    return factor == Element::half ? -14 : -126;
  };
  const int bits = is_warpgroup && bytes_of(left) == 1 ? 13 : 0;
  return {bits != 0 ? bits : 25, bits != 0 ? bits : 23, least(left), least(right), sum == Element::half};
}

float small_float(Element element, std::uint8_t bits) {
  static const std::array<float, 256> e4m3 = small_values(4), e5m2 = small_values(5);
  return (element == Element::e4m3 ? e4m3 : e5m2)[bits];
}

void add_tensor_products(const TensorCore& core, int rows, int n, int k, const float* left, const float* right,
                         float* sums) {
  thread_local const auto memory = std::make_unique<std::int16_t[]>(3 * kMostInMatrix);
  std::int16_t* const of_left = memory.get();
  std::int16_t* const of_right = of_left + kMostInMatrix;
  std::int16_t* const of_sums = of_right + kMostInMatrix;
  const Range first = exponents(left, rows * k, core.least_of_left, of_left);
  const Range second = exponents(right, k * n, core.least_of_right, of_right);
  const Range third = exponents(sums, rows * n, -126, of_sums);
  assert(core.fraction_bits <= 13 || k <= 16);
  const bool is_finite = std::max({first.high, second.high, third.high}) < kNotFinite;
  const bool is_easy = is_finite && std::max(first.high + second.high, third.high) <= kMostExponent &&
                       std::min(first.low + second.low, third.low) >= -kMostExponent;
  for (int row = 0; row < rows; ++row) {
    const int in_left = row * k, in_sums = row * n;
    if (is_easy) {
      for (int column = 0; column < n; column += kColumns) {
        sum_row(core, n, k, left + in_left, of_left + in_left, right + column, of_right + column,
                of_sums + in_sums + column, sums + in_sums + column);
      }
      continue;
    }
    for (int column = 0; column < n; ++column) {
      float& sum = sums[in_sums + column];
      const float strange = is_finite ? 0.0f : not_finite(k, left + in_left, right + column, n, sum);
      sum = strange != 0.0f ? strange
                            : sum_of(core, k, left + in_left, of_left + in_left, right + column, of_right + column, n, sum,
                                     of_sums[in_sums + column]);
    }
  }
}

}  // namespace cuemu

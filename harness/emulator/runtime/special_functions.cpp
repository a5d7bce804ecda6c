// Functions that the C library lacks. Inverse error functions: a first guess, then Newton's method in
// double precision. Modified Bessel functions: those of the C++ library.
#include <cmath>
#include <limits>

namespace cuemu {
namespace {

constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr int kMostSteps = 60;

// Returns x > 0 with erfc(x) = y for 0 < y < 1. log(erfc) is concave, so Newton's method on it does
// not overshoot.
double positive_inverse_erfc(double y) {
  double x = std::sqrt(-std::log(y));
  const double wanted = std::log(y);
  for (int step = 0; step < kMostSteps; ++step) {
    const double there = std::erfc(x);
    const double slope = -kTwoOverSqrtPi * std::exp(-x * x) / there;
    const double change = (std::log(there) - wanted) / slope;
    x -= change;
    if (std::fabs(change) <= 1e-16 * std::fabs(x)) break;
  }
  return x;
}

// The C++ library takes no negative argument, and throws at large ones. Beyond this no double is large enough.
constexpr double kMostOfBessel = 714.0;

double bessel_i(double order, double x) {
  if (x != x) return x;
  return x > kMostOfBessel ? std::numeric_limits<double>::infinity() : std::cyl_bessel_i(order, x);
}

}  // namespace

double bessel_i0(double x) { return bessel_i(0.0, std::fabs(x)); }

double bessel_i1(double x) { return std::copysign(bessel_i(1.0, std::fabs(x)), x); }

double inverse_erfc(double y) {
  if (!(y >= 0.0 && y <= 2.0)) return std::numeric_limits<double>::quiet_NaN();
  if (y == 0.0) return std::numeric_limits<double>::infinity();
  if (y == 2.0) return -std::numeric_limits<double>::infinity();
  if (y == 1.0) return 0.0;
  return y < 1.0 ? positive_inverse_erfc(y) : -positive_inverse_erfc(2.0 - y);
}

double inverse_erf(double x) {
  if (!(x >= -1.0 && x <= 1.0)) return std::numeric_limits<double>::quiet_NaN();
  if (std::fabs(x) > 0.5) return x > 0 ? inverse_erfc(1.0 - x) : -inverse_erfc(1.0 + x);
  double guess = x / kTwoOverSqrtPi;
  for (int step = 0; step < kMostSteps; ++step) {
    const double change = (std::erf(guess) - x) / (kTwoOverSqrtPi * std::exp(-guess * guess));
    guess -= change;
    if (std::fabs(change) <= 1e-16 * std::fabs(guess)) break;
  }
  return guess;
}

// exp(x * x) * erfc(x)
double scaled_erfc(double x) {
  if (x < 20.0) return std::exp(x * x) * std::erfc(x);
  const double inverse_square = 1.0 / (x * x);
  return 0.5 * kTwoOverSqrtPi / x * (1.0 - 0.5 * inverse_square * (1.0 - 1.5 * inverse_square));
}

}  // namespace cuemu

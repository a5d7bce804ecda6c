// Stands in for CUDA's complex numbers for C.
#pragma once

#include <cmath>

#include "cuda_runtime.h"

using cuFloatComplex = float2;
inline float cuCrealf(cuFloatComplex x) { return x.x; }
inline float cuCimagf(cuFloatComplex x) { return x.y; }
inline cuFloatComplex make_cuFloatComplex(float real, float imaginary) { return make_float2(real, imaginary); }
inline cuFloatComplex cuConjf(cuFloatComplex x) { return make_float2(x.x, -x.y); }
inline cuFloatComplex cuCaddf(cuFloatComplex a, cuFloatComplex b) { return make_float2(a.x + b.x, a.y + b.y); }
inline cuFloatComplex cuCsubf(cuFloatComplex a, cuFloatComplex b) { return make_float2(a.x - b.x, a.y - b.y); }
inline cuFloatComplex cuCmulf(cuFloatComplex a, cuFloatComplex b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
inline cuFloatComplex cuCdivf(cuFloatComplex a, cuFloatComplex b) {  // scaled, so that nothing overflows on the way
  const float scale = 1 / (std::fabs(b.x) + std::fabs(b.y));
  const float2 top = make_float2(a.x * scale, a.y * scale), under = make_float2(b.x * scale, b.y * scale);
  const float over = 1 / (under.x * under.x + under.y * under.y);
  return make_float2((top.x * under.x + top.y * under.y) * over, (top.y * under.x - top.x * under.y) * over);
}
inline float cuCabsf(cuFloatComplex x) { return std::hypot(x.x, x.y); }
inline cuFloatComplex cuCfmaf(cuFloatComplex a, cuFloatComplex b, cuFloatComplex c) { return cuCaddf(cuCmulf(a, b), c); }

using cuDoubleComplex = double2;
inline double cuCreal(cuDoubleComplex x) { return x.x; }
inline double cuCimag(cuDoubleComplex x) { return x.y; }
inline cuDoubleComplex make_cuDoubleComplex(double real, double imaginary) { return make_double2(real, imaginary); }
inline cuDoubleComplex cuConj(cuDoubleComplex x) { return make_double2(x.x, -x.y); }
inline cuDoubleComplex cuCadd(cuDoubleComplex a, cuDoubleComplex b) { return make_double2(a.x + b.x, a.y + b.y); }
inline cuDoubleComplex cuCsub(cuDoubleComplex a, cuDoubleComplex b) { return make_double2(a.x - b.x, a.y - b.y); }
inline cuDoubleComplex cuCmul(cuDoubleComplex a, cuDoubleComplex b) {
  return make_double2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
inline cuDoubleComplex cuCdiv(cuDoubleComplex a, cuDoubleComplex b) {  // scaled, so that nothing overflows on the way
  const double scale = 1 / (std::fabs(b.x) + std::fabs(b.y));
  const double2 top = make_double2(a.x * scale, a.y * scale), under = make_double2(b.x * scale, b.y * scale);
  const double over = 1 / (under.x * under.x + under.y * under.y);
  return make_double2((top.x * under.x + top.y * under.y) * over, (top.y * under.x - top.x * under.y) * over);
}
inline double cuCabs(cuDoubleComplex x) { return std::hypot(x.x, x.y); }
inline cuDoubleComplex cuCfma(cuDoubleComplex a, cuDoubleComplex b, cuDoubleComplex c) { return cuCadd(cuCmul(a, b), c); }

using cuComplex = cuFloatComplex;
inline cuComplex make_cuComplex(float real, float imaginary) { return make_float2(real, imaginary); }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex x) { return make_double2(x.x, x.y); }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex x) {
  return make_float2(static_cast<float>(x.x), static_cast<float>(x.y));
}

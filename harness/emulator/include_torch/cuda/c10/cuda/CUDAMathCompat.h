// The C++ library's functions under the names that device code of torch's uses.
#pragma once

#include <algorithm>
#include <cmath>

namespace c10::cuda::compat {
using std::abs;
using std::ceil;
using std::copysign;
using std::exp;
using std::floor;
using std::log;
using std::log1p;
using std::max;
using std::min;
using std::pow;
using std::sqrt;
using std::tan;
using std::tanh;
template <typename T>
inline T rsqrt(T x) { return T(1) / std::sqrt(x); }
} // namespace c10::cuda::compat

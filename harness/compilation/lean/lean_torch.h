// The parts of torch's C++ API that extensions need: the tensor, checks, dispatch macros, dtypes,
// and the operators and features that lean_torch_selection.h names. The build writes that header
// for each translation unit.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <math.h>
#include <stdlib.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

// Tensor arithmetic needs a few operators. Without AT_PER_OPERATOR_HEADERS torch would include all
// of them.
#define LEAN_TORCH_OPERATORS
#ifdef AT_PER_OPERATOR_HEADERS
#include <ATen/TensorOperators.h>
#else
#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorOperators.h>
#undef AT_PER_OPERATOR_HEADERS
#endif
#undef LEAN_TORCH_OPERATORS

#include "lean_torch_selection.h"

namespace at {
using NoGradGuard = c10::NoGradGuard;
} // namespace at

namespace torch {

using namespace at;
using std::nullopt;
using std::optional;

using Dtype = at::ScalarType;
using NoGradGuard = c10::NoGradGuard;
using AutoGradMode = c10::AutoGradMode;
using InferenceMode = c10::InferenceMode;

constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kUInt16 = at::kUInt16;
constexpr auto kUInt32 = at::kUInt32;
constexpr auto kUInt64 = at::kUInt64;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8;
constexpr auto kI8 = kInt8;
constexpr auto kI16 = kInt16;
constexpr auto kI32 = kInt32;
constexpr auto kI64 = kInt64;
constexpr auto kF16 = kFloat16;
constexpr auto kF32 = kFloat32;
constexpr auto kF64 = kFloat64;

} // namespace torch

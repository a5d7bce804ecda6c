// Stands in for torch's header beside ATen/core/Tensor.h. A unit that needs more than the names of
// these types does not compile with it, and is built again with torch's own headers.
#pragma once

#include <cstdint>
#include <optional>

namespace c10 {

class Scalar;
enum class ScalarType : std::int8_t;
using std::optional;

}  // namespace c10

namespace at {

using c10::Scalar;
using c10::ScalarType;

}  // namespace at

// Declares again what torch removed. Every translation unit of a build with --compat includes it
// first.
#pragma once
#include <ATen/Dispatch.h>
#include <ATen/core/DeprecatedTypeProperties.h>
#include <c10/util/Exception.h>

namespace detail {
// AT_DISPATCH_* call this function with their first argument: x.type().
inline at::ScalarType scalar_type(const at::DeprecatedTypeProperties& type) {
  return type.scalarType();
}
} // namespace detail

#ifndef AT_CHECK
#define AT_CHECK TORCH_CHECK
#endif

// torch declares RestrictPtrTraits for device compilers only.
#if !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)
#pragma once
#include_next <ATen/core/TensorAccessor.h>

#if !defined(__CUDACC__)
namespace at {
template <typename T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};
} // namespace at
#endif
#endif

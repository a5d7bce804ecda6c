// Checks of CUDA calls, as extensions write them, against the emulated runtime.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime.h>

namespace c10 {
class CUDAError : public c10::Error {
  using Error::Error;
};
} // namespace c10

#define C10_CUDA_CHECK(EXPR)                                                                         \
  do {                                                                                               \
    const cudaError_t cuemu_status = EXPR;                                                           \
    TORCH_CHECK_WITH(CUDAError, cuemu_status == cudaSuccess, "CUDA error: ", cudaGetErrorString(cuemu_status)); \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR)                                   \
  do {                                                              \
    const cudaError_t cuemu_status = EXPR;                          \
    if (cuemu_status != cudaSuccess) {                              \
      [[maybe_unused]] auto cuemu_cleared = cudaGetLastError();     \
      TORCH_WARN("CUDA warning: ", cudaGetErrorString(cuemu_status)); \
    }                                                               \
  } while (0)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR)                             \
  do {                                                          \
    if ((EXPR) != cudaSuccess) {                                \
      [[maybe_unused]] auto cuemu_cleared = cudaGetLastError(); \
    }                                                           \
  } while (0)
#define C10_CUDA_CLEAR_ERROR() C10_CUDA_IGNORE_ERROR(cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())

// Checks CUDA calls with the emulated runtime's own messages. A CPU build of torch has none.
#pragma once
#include_next <torch/csrc/stable/macros.h>

#include <stdexcept>
#include <string>

#undef STD_CUDA_CHECK
#undef STD_CUDA_KERNEL_LAUNCH_CHECK
// Users of this macro include cuda_runtime.h.
#define STD_CUDA_CHECK(EXPR)                                                                \
  do {                                                                                      \
    const cudaError_t cuemu_status = EXPR;                                                  \
    if (cuemu_status != cudaSuccess) {                                                      \
      throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(cuemu_status)); \
    }                                                                                       \
  } while (0)
#define STD_CUDA_KERNEL_LAUNCH_CHECK() STD_CUDA_CHECK(cudaGetLastError())

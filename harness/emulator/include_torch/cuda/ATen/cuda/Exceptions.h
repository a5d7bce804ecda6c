// Checks of CUDA calls under their older names.
#pragma once

#include <c10/cuda/CUDAException.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define AT_CUDA_DRIVER_CHECK(EXPR) TORCH_CHECK((EXPR) == 0, "CUDA driver error")

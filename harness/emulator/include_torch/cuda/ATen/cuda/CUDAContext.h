// The emulated device's context, streams included.
#pragma once

#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAGuard.h>

namespace at::cuda {
using namespace c10::cuda;
} // namespace at::cuda

// What torch's header includes. The functions that it declares itself launch kernels, and are refused by name.
#pragma once

#include <ATen/ceil_div.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cuda/ApplyGridUtils.cuh>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/detail/IndexUtils.cuh>
#include <c10/macros/Macros.h>

#include <cmath>

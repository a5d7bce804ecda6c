// The context already provides everything.
#pragma once

#include <ATen/cuda/CUDAContext.h>

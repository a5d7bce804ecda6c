// Nothing but what the context already gives.
#pragma once

#include <ATen/cuda/CUDAContext.h>

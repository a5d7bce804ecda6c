// Stands in for CUDA's header of this name, without the experimental classes of CUDA 11.0.
#pragma once

#include "cuda_pipeline_primitives.h"

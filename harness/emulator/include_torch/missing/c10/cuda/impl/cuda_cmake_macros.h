// torch's own CUDA headers include this file, and a CPU build of torch does not ship it.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS

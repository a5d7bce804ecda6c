// What torch's own headers for CUDA include, and a CPU build of torch comes without.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS

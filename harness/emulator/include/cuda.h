// The few names of CUDA's driver interface that kernels' host code mentions; none of its functions.
#pragma once

#include "cuemu_prelude.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;

// The few names of CUDA's driver API that host code of kernels mentions; of its functions, those of tensor maps
// (cuemu/tensor_map.h).
#pragma once

#include "cuemu_prelude.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef cudaStream_t CUstream;
typedef cudaEvent_t CUevent;

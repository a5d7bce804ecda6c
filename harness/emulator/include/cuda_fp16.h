// CUDA's half precision.
#pragma once

#include "cuda_runtime.h"
#include "cuemu/small_float_bits.h"

#define CUEMU_TYPE __half
#define CUEMU_PAIR __half2
#define CUEMU_RAW __half_raw
#define CUEMU_RAW_PAIR __half2_raw
#define CUEMU_FORMAT ::cuemu::HalfBits
#define CUEMU_TAG half
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define CUEMU_CONVERSIONS 0
#else
#define CUEMU_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define CUEMU_OPERATORS 0
#else
#define CUEMU_OPERATORS 1
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define CUEMU_PAIR_OPERATORS 0
#else
#define CUEMU_PAIR_OPERATORS 1
#endif
#include "cuemu/small_float.inc"

inline __half2 __half2half2(__half value) { return {value, value}; }

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

#define CUDART_INF_FP16 __ushort_as_half(static_cast<unsigned short>(0x7C00u))
#define CUDART_NAN_FP16 __ushort_as_half(static_cast<unsigned short>(0x7FFFu))
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(static_cast<unsigned short>(0x7BFFu))
#define CUDART_ONE_FP16 __ushort_as_half(static_cast<unsigned short>(0x3C00u))
#define CUDART_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x0000u))
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(static_cast<unsigned short>(0x8000u))

// CUDA's bfloat16.
#pragma once

#include "cuda_runtime.h"
#include "cuemu/small_float_bits.h"

#define CUEMU_TYPE __nv_bfloat16
#define CUEMU_PAIR __nv_bfloat162
#define CUEMU_RAW __nv_bfloat16_raw
#define CUEMU_RAW_PAIR __nv_bfloat162_raw
#define CUEMU_FORMAT ::cuemu::BfloatBits
#define CUEMU_TAG bfloat16
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define CUEMU_CONVERSIONS 0
#else
#define CUEMU_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define CUEMU_OPERATORS 0
#else
#define CUEMU_OPERATORS 1
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define CUEMU_PAIR_OPERATORS 0
#else
#define CUEMU_PAIR_OPERATORS 1
#endif
#include "cuemu/small_float.inc"

inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) { return {value, value}; }

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDART_INF_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7F80u))
#define CUDART_NAN_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x7FFFu))
#define CUDART_ONE_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x3F80u))
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(static_cast<unsigned short>(0x0000u))

// Stands in for CUB's header of this name: its namespace, its version and the constants of a multiprocessor.
#pragma once

#define CUB_NAMESPACE_BEGIN namespace cub {
#define CUB_NAMESPACE_END }
#define CUB_NS_PREFIX
#define CUB_NS_POSTFIX
#define CUB_NS_QUALIFIER ::cub
#define CUB_STATIC_ASSERT(condition, message) static_assert(condition, #message)

#define CUB_VERSION 200700
#define CUB_MAJOR_VERSION 2
#define CUB_MINOR_VERSION 7
#define CUB_SUBMINOR_VERSION 0
#define CUB_PATCH_NUMBER 0

#define CUB_LOG_WARP_THREADS(unused) (5)
#define CUB_WARP_THREADS(unused) (32)
#define CUB_PTX_LOG_WARP_THREADS (5)
#define CUB_PTX_WARP_THREADS (32)
#define CUB_LOG_SMEM_BANKS(unused) (5)
#define CUB_SMEM_BANKS(unused) (32)
#define CUB_PTX_LOG_SMEM_BANKS (5)
#define CUB_PTX_SMEM_BANKS (32)

// torch's names of the atomic operations, and atomicAdd of the types that CUDA's lacks.
#pragma once

#ifndef CUEMU_APART  // nvcc reads torch's own header
#include_next <ATen/cuda/Atomic.cuh>
#else
#include <ATen/core/Tensor.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

inline __device__ at::Half atomicAdd(at::Half* address, at::Half value) {
  return atomicAdd(reinterpret_cast<__half*>(address), static_cast<__half>(value));
}
inline __device__ at::BFloat16 atomicAdd(at::BFloat16* address, at::BFloat16 value) {
  return atomicAdd(reinterpret_cast<__nv_bfloat16*>(address), static_cast<__nv_bfloat16>(value));
}
inline __device__ void atomicAdd(int64_t* address, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(address), static_cast<unsigned long long>(value));
}
#define CUEMU_SMALL(type, next)                                                                                     \
  inline __device__ void atomicAdd(type* address, type value) {                                                     \
    ::cuemu::atomic_update<false>(address, [value](type old) -> type { return next; });                             \
  }
CUEMU_SMALL(uint8_t, static_cast<uint8_t>(old + value))
CUEMU_SMALL(int8_t, static_cast<int8_t>(old + value))
CUEMU_SMALL(int16_t, static_cast<int16_t>(old + value))
CUEMU_SMALL(bool, old || value)
#undef CUEMU_SMALL

template <typename T>
inline __device__ auto gpuAtomicAdd(T* address, T value) { return atomicAdd(address, value); }
template <typename T>
inline __device__ auto gpuAtomicAddNoReturn(T* address, T value) { return atomicAdd(address, value); }
template <typename T>
inline __device__ T gpuAtomicMax(T* address, T value) { return atomicMax(address, value); }
template <typename T>
inline __device__ T gpuAtomicMin(T* address, T value) { return atomicMin(address, value); }
#endif

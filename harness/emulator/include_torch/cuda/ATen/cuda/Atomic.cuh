// torch's names of the atomic operations.
#pragma once

#include <cuda_runtime.h>

template <typename T>
inline __device__ T gpuAtomicAdd(T* address, T value) { return atomicAdd(address, value); }
template <typename T>
inline __device__ T gpuAtomicAddNoReturn(T* address, T value) { return atomicAdd(address, value); }
template <typename T>
inline __device__ T gpuAtomicMax(T* address, T value) { return atomicMax(address, value); }
template <typename T>
inline __device__ T gpuAtomicMin(T* address, T value) { return atomicMin(address, value); }

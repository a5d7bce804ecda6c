// Replaces what extensions used of THC beside ATen: its state, which only names a stream, and small
// helpers.
#pragma once
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

struct THCState;
// torch defined it. This definition is weak, so that every translation unit may have one.
__attribute__((weak)) THCState* state = nullptr;

inline cudaStream_t THCState_getCurrentStream(THCState*) {
  return at::cuda::getCurrentCUDAStream();
}

template <typename T>
__host__ __device__ __forceinline__ T THCCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}

#define THCudaCheck(result) C10_CUDA_CHECK(result)

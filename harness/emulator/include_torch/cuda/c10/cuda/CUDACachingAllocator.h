// Memory of the emulated device is the host's; a caching allocator's statistics do not exist.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda::CUDACachingAllocator {
inline c10::Allocator* get() { return c10::GetCPUAllocator(); }
inline void* raw_alloc(size_t bytes) { return c10::GetCPUAllocator()->raw_allocate(bytes); }
inline void* raw_alloc_with_stream(size_t bytes, cudaStream_t) { return raw_alloc(bytes); }
inline void raw_delete(void* data) { c10::GetCPUAllocator()->raw_deallocate(data); }
inline void emptyCache() {}
inline void recordStream(const c10::DataPtr&, CUDAStream) {}
} // namespace c10::cuda::CUDACachingAllocator

// Stands in for CUDA's C functions on asynchronous copies.
#pragma once

#include "cuda_awbarrier_primitives.h"

CUEMU_INLINE void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0, CUEMU_LINE) {
  ::cuemu::ptx::copy_async(static_cast<char*>(to), static_cast<const char*>(from), static_cast<std::uint32_t>(bytes),
                           static_cast<std::uint32_t>(bytes - zeros), line.number);
}
inline void __pipeline_commit() { ::cuemu::commit_async_copies(false); }
CUEMU_INLINE void __pipeline_wait_prior(std::size_t pending) {
  ::cuemu::ptx::wait_for_copies(false, static_cast<std::uint32_t>(pending < 8 ? pending : 8));
}
CUEMU_INLINE void __pipeline_arrive_on(__mbarrier_t* barrier, CUEMU_LINE) {
  ::cuemu::ptx::expect_copies(cuemu_place(barrier), line.number);
}

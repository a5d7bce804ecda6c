// Stands in for CUDA's C functions on mbarriers.
#pragma once

#include "cuemu/line.h"
#include "cuemu/ptx.h"

typedef std::uint64_t __mbarrier_t;
typedef std::uint64_t __mbarrier_token_t;

inline char* cuemu_place(__mbarrier_t* barrier) { return reinterpret_cast<char*>(barrier); }

inline std::uint32_t __mbarrier_maximum_count() { return (1 << 20) - 1; }
CUEMU_INLINE void __mbarrier_init(__mbarrier_t* barrier, std::uint32_t count, CUEMU_LINE) {
  ::cuemu::ptx::begin_mbarrier(cuemu_place(barrier), count, line.number);
}
CUEMU_INLINE void __mbarrier_inval(__mbarrier_t* barrier) { ::cuemu::ptx::end_mbarrier(cuemu_place(barrier)); }
CUEMU_INLINE __mbarrier_token_t __mbarrier_arrive(__mbarrier_t* barrier, CUEMU_LINE) {
  return ::cuemu::ptx::arrive(cuemu_place(barrier), 0, 1, line.number);
}
CUEMU_INLINE __mbarrier_token_t __mbarrier_arrive_and_drop(__mbarrier_t* barrier, CUEMU_LINE) {
  return ::cuemu::ptx::arrive_and_drop(cuemu_place(barrier), line.number);
}
CUEMU_INLINE bool __mbarrier_test_wait(__mbarrier_t* barrier, __mbarrier_token_t token, CUEMU_LINE) {
  return ::cuemu::ptx::has_completed(cuemu_place(barrier), token >> 63, line.number);
}
CUEMU_INLINE bool __mbarrier_test_wait_parity(__mbarrier_t* barrier, bool parity, CUEMU_LINE) {
  return ::cuemu::ptx::has_completed(cuemu_place(barrier), parity, line.number);
}
CUEMU_INLINE bool __mbarrier_try_wait(__mbarrier_t* barrier, __mbarrier_token_t token, std::uint32_t, CUEMU_LINE) {
  return ::cuemu::ptx::has_completed(cuemu_place(barrier), token >> 63, line.number);
}
CUEMU_INLINE bool __mbarrier_try_wait_parity(__mbarrier_t* barrier, bool parity, std::uint32_t, CUEMU_LINE) {
  return ::cuemu::ptx::has_completed(cuemu_place(barrier), parity, line.number);
}

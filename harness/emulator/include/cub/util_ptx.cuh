// Stands in for CUB's functions that are one instruction or two of a warp or a block.
#pragma once

#include "util_type.cuh"

namespace cub {

CUEMU_INLINE unsigned LaneId() { return static_cast<unsigned>(detail::lane_of_warp()); }
CUEMU_INLINE unsigned WarpId() { return ::cuemu::position_in(threadIdx, blockDim) / 32; }
CUEMU_INLINE unsigned LaneMaskLt() { return (1u << LaneId()) - 1; }
CUEMU_INLINE unsigned LaneMaskLe() { return LaneMaskLt() | 1u << LaneId(); }
CUEMU_INLINE unsigned LaneMaskGt() { return ~LaneMaskLe(); }
CUEMU_INLINE unsigned LaneMaskGe() { return ~LaneMaskLt(); }
CUEMU_INLINE int RowMajorTid(int x, int y, int) {
  return static_cast<int>((threadIdx.z * y + threadIdx.y) * x + threadIdx.x);
}
template <int threads, int = 0>  // CUDA 12's second parameter is an architecture
CUEMU_INLINE unsigned WarpMask(unsigned warp) {
  return ~0u >> (32 - threads) << (PowerOfTwo<threads>::VALUE && threads < 32 ? warp * threads : 0);
}

CUEMU_INLINE void CTA_SYNC(CUEMU_LINE) { __syncthreads(line.number); }
CUEMU_INLINE int CTA_SYNC_AND(int predicate, CUEMU_LINE) { return __syncthreads_and(predicate, line.number); }
CUEMU_INLINE int CTA_SYNC_OR(int predicate, CUEMU_LINE) { return __syncthreads_or(predicate, line.number); }
CUEMU_INLINE void WARP_SYNC(unsigned mask, CUEMU_LINE) { __syncwarp(mask, line.number); }

// Shuffles among the threads of a logical warp, whose number is a power of two. A thread whose source lies beyond the
// first or last one keeps its input.
template <int threads, typename T>
CUEMU_INLINE T ShuffleUp(T input, int offset, int first_thread, unsigned mask, CUEMU_LINE) {
  const int own = detail::lane_of_warp(), source = own - offset;
  return detail::from_lane(source < own / threads * threads + first_thread ? own : source, input, mask, line);
}
template <int threads, typename T>
CUEMU_INLINE T ShuffleDown(T input, int offset, int last_thread, unsigned mask, CUEMU_LINE) {
  const int own = detail::lane_of_warp(), source = own + offset;
  return detail::from_lane(source > own / threads * threads + last_thread % threads ? own : source, input, mask, line);
}
template <int threads, typename T>
CUEMU_INLINE T ShuffleIndex(T input, int source, unsigned mask, CUEMU_LINE) {
  return detail::from_lane(detail::lane_of_warp() / threads * threads + source % threads, input, mask, line);
}

}  // namespace cub

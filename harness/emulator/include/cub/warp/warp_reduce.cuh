// Stands in for CUB's reductions of a warp.
#pragma once

#include "../util_type.cuh"

namespace cub {

// Only the first lane, or the first of each segment, has the result.
template <typename T, int size = 32, int = 0>
class WarpReduce {
 public:
  struct TempStorage {};
  explicit WarpReduce(TempStorage&) {}

  CUEMU_INLINE T Sum(T input, CUEMU_LINE) { return reduce(input, size - 1, ::std::plus<>(), line); }
  CUEMU_INLINE T Sum(T input, int valid, CUEMU_LINE) { return reduce(input, valid - 1, ::std::plus<>(), line); }
  template <typename Op>
  CUEMU_INLINE T Reduce(T input, Op op, CUEMU_LINE) {
    return reduce(input, size - 1, op, line);
  }
  template <typename Op>
  CUEMU_INLINE T Reduce(T input, Op op, int valid, CUEMU_LINE) {
    return reduce(input, valid - 1, op, line);
  }
  template <typename Flag>
  CUEMU_INLINE T HeadSegmentedSum(T input, Flag flag, CUEMU_LINE) {
    return HeadSegmentedReduce(input, flag, ::std::plus<>(), line);
  }
  template <typename Flag>
  CUEMU_INLINE T TailSegmentedSum(T input, Flag flag, CUEMU_LINE) {
    return TailSegmentedReduce(input, flag, ::std::plus<>(), line);
  }
  template <typename Flag, typename Op>
  CUEMU_INLINE T HeadSegmentedReduce(T input, Flag flag, Op op, CUEMU_LINE) {
    return reduce(input, last_of_segment(flags(flag, line) >> 1), op, line);
  }
  template <typename Flag, typename Op>
  CUEMU_INLINE T TailSegmentedReduce(T input, Flag flag, Op op, CUEMU_LINE) {
    return reduce(input, last_of_segment(flags(flag, line)), op, line);
  }

 private:
  template <typename Flag>
  CUEMU_INLINE unsigned flags(Flag flag, ::cuemu::Line line) const {
    return (__ballot_sync(warp_.mask, static_cast<bool>(flag), line.number) & warp_.mask) >> warp_.first;
  }
  int last_of_segment(unsigned ends) const {
    return ::std::countr_zero((ends & ~0u << warp_.lane) | 1u << (size - 1));
  }
  template <typename Op>
  CUEMU_INLINE T reduce(T value, int last, Op op, ::cuemu::Line line) const {
    for (int offset = 1; offset < size; offset *= 2) {
      const bool takes = warp_.lane + offset <= last;
      const T other = warp_.from(takes ? warp_.lane + offset : warp_.lane, value, line);
      if (takes) value = op(value, other);
    }
    return value;
  }

  detail::LogicalWarp<size> warp_;
};

}  // namespace cub

// Stands in for CUB's prefix operations of a warp.
#pragma once

#include "../util_type.cuh"

namespace cub {

template <typename T, int size = 32, int = 0>
class WarpScan {
 public:
  struct TempStorage {};
  explicit WarpScan(TempStorage&) {}

  CUEMU_INLINE void InclusiveSum(T input, T& inclusive, CUEMU_LINE) { InclusiveScan(input, inclusive, ::std::plus<>(), line); }
  CUEMU_INLINE void InclusiveSum(T input, T& inclusive, T& aggregate, CUEMU_LINE) {
    InclusiveScan(input, inclusive, ::std::plus<>(), aggregate, line);
  }
  CUEMU_INLINE void ExclusiveSum(T input, T& exclusive, CUEMU_LINE) {
    ExclusiveScan(input, exclusive, T{}, ::std::plus<>(), line);
  }
  CUEMU_INLINE void ExclusiveSum(T input, T& exclusive, T& aggregate, CUEMU_LINE) {
    ExclusiveScan(input, exclusive, T{}, ::std::plus<>(), aggregate, line);
  }

  template <typename Op>
  CUEMU_INLINE void InclusiveScan(T input, T& inclusive, Op op, CUEMU_LINE) {
    inclusive = scanned(input, op, line);
  }
  template <typename Op>
  CUEMU_INLINE void InclusiveScan(T input, T& inclusive, Op op, T& aggregate, CUEMU_LINE) {
    inclusive = scanned(input, op, line);
    aggregate = warp_.from(size - 1, inclusive, line);
  }
  template <typename Op>
  CUEMU_INLINE void InclusiveScan(T input, T& inclusive, T initial, Op op, CUEMU_LINE) {
    inclusive = op(initial, scanned(input, op, line));
  }
  template <typename Op>
  CUEMU_INLINE void InclusiveScan(T input, T& inclusive, T initial, Op op, T& aggregate, CUEMU_LINE) {
    const T own = scanned(input, op, line);
    aggregate = warp_.from(size - 1, own, line);
    inclusive = op(initial, own);
  }

  // Without an initial value the first lane's result is undefined.
  template <typename Op>
  CUEMU_INLINE void ExclusiveScan(T input, T& exclusive, Op op, CUEMU_LINE) {
    exclusive = before(scanned(input, op, line), line);
  }
  template <typename Op>
  CUEMU_INLINE void ExclusiveScan(T input, T& exclusive, Op op, T& aggregate, CUEMU_LINE) {
    const T own = scanned(input, op, line);
    aggregate = warp_.from(size - 1, own, line);
    exclusive = before(own, line);
  }
  template <typename Op>
  CUEMU_INLINE void ExclusiveScan(T input, T& exclusive, T initial, Op op, CUEMU_LINE) {
    T inclusive;
    Scan(input, inclusive, exclusive, initial, op, line);
  }
  template <typename Op>
  CUEMU_INLINE void ExclusiveScan(T input, T& exclusive, T initial, Op op, T& aggregate, CUEMU_LINE) {
    const T own = scanned(input, op, line);
    aggregate = warp_.from(size - 1, own, line);
    exclusive = before(op(initial, own), line);
    if (warp_.lane == 0) exclusive = initial;
  }

  template <typename Op>
  CUEMU_INLINE void Scan(T input, T& inclusive, T& exclusive, Op op, CUEMU_LINE) {
    inclusive = scanned(input, op, line);
    exclusive = before(inclusive, line);
  }
  template <typename Op>
  CUEMU_INLINE void Scan(T input, T& inclusive, T& exclusive, T initial, Op op, CUEMU_LINE) {
    inclusive = op(initial, scanned(input, op, line));
    exclusive = before(inclusive, line);
    if (warp_.lane == 0) exclusive = initial;
  }
  CUEMU_INLINE T Broadcast(T input, unsigned source, CUEMU_LINE) { return warp_.from(static_cast<int>(source), input, line); }

 private:
  template <typename Op>
  CUEMU_INLINE T scanned(T value, Op op, ::cuemu::Line line) const {
    for (int offset = 1; offset < size; offset *= 2) {
      const bool takes = warp_.lane >= offset;
      const T other = warp_.from(takes ? warp_.lane - offset : warp_.lane, value, line);
      if (takes) value = op(other, value);
    }
    return value;
  }
  CUEMU_INLINE T before(const T& value, ::cuemu::Line line) const {
    return warp_.from(warp_.lane > 0 ? warp_.lane - 1 : 0, value, line);
  }

  detail::LogicalWarp<size> warp_;
};

}  // namespace cub

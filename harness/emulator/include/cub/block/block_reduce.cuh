// Stands in for CUB's reductions of a block, with the order of sums of each algorithm.
#pragma once

#include "../warp/warp_reduce.cuh"

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };

namespace detail {

// How few threads take the values of all, each those of a segment.
template <int threads>
struct Raking {
  static constexpr int kMost = threads < 32 ? threads : 32;
  static constexpr int kSegment = (threads + kMost - 1) / kMost;
  static constexpr int kThreads = (threads + kSegment - 1) / kSegment;
};

}  // namespace detail

// Only the first thread has the result.
template <typename T, int x, BlockReduceAlgorithm algorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int y = 1, int z = 1, int = 0>
class BlockReduce {
  static constexpr int kThreads = x * y * z, kWarps = (kThreads + 31) / 32, kWarp = kThreads < 32 ? kThreads : 32;
  static constexpr bool kIsWhole = kThreads % kWarp == 0;
  static constexpr bool kByWarps = algorithm == BLOCK_REDUCE_WARP_REDUCTIONS;
  // With as many threads as one warp, the commutative algorithm is the other one.
  static constexpr bool kIsCommutative = algorithm == BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY && kThreads % 32 == 0 && kThreads > 32;
  using Raked = detail::Raking<kThreads>;

 public:
  using TempStorage = detail::Places<T, kByWarps ? kWarps : kThreads>;
  CUEMU_INLINE explicit BlockReduce(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockReduce(TempStorage& storage) : storage_(storage) {}

  CUEMU_INLINE T Sum(T input, CUEMU_LINE) { return reduce<true>(input, kThreads, ::std::plus<>(), line); }
  CUEMU_INLINE T Sum(T input, int valid, CUEMU_LINE) { return Reduce(input, ::std::plus<>(), valid, line); }
  template <int items>
  CUEMU_INLINE T Sum(T (&inputs)[items], CUEMU_LINE) {
    return Reduce(inputs, ::std::plus<>(), line);
  }
  template <typename Op>
  CUEMU_INLINE T Reduce(T input, Op op, CUEMU_LINE) {
    return reduce<true>(input, kThreads, op, line);
  }
  template <int items, typename Op>
  CUEMU_INLINE T Reduce(T (&inputs)[items], Op op, CUEMU_LINE) {
    return reduce<true>(detail::reduce_items(inputs, op), kThreads, op, line);
  }
  template <typename Op>
  CUEMU_INLINE T Reduce(T input, Op op, int valid, CUEMU_LINE) {
    return valid >= kThreads ? reduce<true>(input, valid, op, line) : reduce<false>(input, valid, op, line);
  }

 private:
  template <bool is_full, typename Op>
  CUEMU_INLINE T reduce(T value, int valid, Op op, ::cuemu::Line line) {
    if constexpr (kByWarps) return by_warps<is_full>(value, valid, op, line);
    else if constexpr (is_full && kIsCommutative) return by_first_warp(value, op, line);
    else return by_raking<is_full>(value, valid, op, line);
  }
  template <bool is_full, typename Op>
  CUEMU_INLINE T by_warps(T value, int valid, Op op, ::cuemu::Line line) {
    const int warp = kWarps == 1 ? 0 : thread_ / 32, first = warp * kWarp;
    const int in_warp = (is_full && kIsWhole) || first + kWarp <= valid ? kWarp : valid - first;
    value = of_warp<kWarp>(value, in_warp, op, line);
    if (detail::lane_of_warp() == 0) storage_[warp] = value;
    __syncthreads(line.number);
    if (thread_ != 0) return value;
    for (int i = 1; i < kWarps && (is_full || i * kWarp < valid); ++i) value = op(value, storage_[i]);
    return value;
  }
  template <bool is_full, typename Op>
  CUEMU_INLINE T by_raking(T value, int valid, Op op, ::cuemu::Line line) {
    constexpr int segment = Raked::kSegment;
    if constexpr (Raked::kThreads == kThreads) return of_warp<kThreads>(value, is_full ? kThreads : valid, op, line);
    const int count = is_full ? kThreads : valid;
    storage_[thread_] = value;
    __syncthreads(line.number);
    if (thread_ >= Raked::kThreads) return value;
    value = storage_[thread_ * segment];
    for (int i = 1; i < segment && thread_ * segment + i < count; ++i) value = op(value, storage_[thread_ * segment + i]);
    return of_warp<Raked::kThreads>(value, (count + segment - 1) / segment, op, line);
  }
  template <typename Op>
  CUEMU_INLINE T by_first_warp(T value, Op op, ::cuemu::Line line) {
    constexpr int segment = (kThreads - 32) / 32;
    if (thread_ >= 32) storage_[thread_ - 32] = value;
    __syncthreads(line.number);
    if (thread_ >= 32) return value;
    T all[segment + 1];
    all[0] = value;
    for (int i = 0; i < segment; ++i) all[i + 1] = storage_[thread_ * segment + i];
    return of_warp<32>(detail::reduce_items(all, op), 32, op, line);
  }
  template <int size, typename Op>
  CUEMU_INLINE T of_warp(T value, int valid, Op op, ::cuemu::Line line) {
    typename WarpReduce<T, size>::TempStorage none;
    return WarpReduce<T, size>(none).Reduce(value, op, valid, line);
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

}  // namespace cub

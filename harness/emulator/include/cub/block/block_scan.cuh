// Stands in for CUB's prefix operations of a block, with the order of sums of each algorithm.
#pragma once

#include "../warp/warp_scan.cuh"
#include "block_reduce.cuh"

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <typename T, int x, BlockScanAlgorithm algorithm = BLOCK_SCAN_RAKING, int y = 1, int z = 1, int = 0>
class BlockScan {
  static constexpr int kThreads = x * y * z, kWarps = (kThreads + 31) / 32;
  static constexpr bool kByWarps = algorithm == BLOCK_SCAN_WARP_SCANS && kThreads % 32 == 0;
  using Raked = detail::Raking<kThreads>;

 public:
  // The last place is for what the whole block has in common.
  using TempStorage = detail::Places<T, (kByWarps ? kWarps : kThreads) + 1>;
  CUEMU_INLINE explicit BlockScan(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockScan(TempStorage& storage) : storage_(storage) {}

#define CUEMU_SUMS(name, scan, ...)                                                                                     \
  CUEMU_INLINE void name(T input, T& output, CUEMU_LINE) { scan(input, output, __VA_ARGS__ ::std::plus<>(), line); }    \
  CUEMU_INLINE void name(T input, T& output, T& aggregate, CUEMU_LINE) {                                                \
    scan(input, output, __VA_ARGS__ ::std::plus<>(), aggregate, line);                                                  \
  }                                                                                                                     \
  template <typename Prefix>                                                                                            \
  CUEMU_INLINE void name(T input, T& output, Prefix& prefix, CUEMU_LINE) {                                              \
    scan(input, output, ::std::plus<>(), prefix, line);                                                                 \
  }                                                                                                                     \
  template <int items>                                                                                                  \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], CUEMU_LINE) {                                           \
    scan(input, output, __VA_ARGS__ ::std::plus<>(), line);                                                             \
  }                                                                                                                     \
  template <int items>                                                                                                  \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], T& aggregate, CUEMU_LINE) {                             \
    scan(input, output, __VA_ARGS__ ::std::plus<>(), aggregate, line);                                                  \
  }                                                                                                                     \
  template <int items, typename Prefix>                                                                                 \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], Prefix& prefix, CUEMU_LINE) {                           \
    scan(input, output, ::std::plus<>(), prefix, line);                                                                 \
  }
  CUEMU_SUMS(InclusiveSum, InclusiveScan, )
  CUEMU_SUMS(ExclusiveSum, ExclusiveScan, T{}, )
#undef CUEMU_SUMS

// A prefix is a functor that gets the block's aggregate, for the first warp. What follows it is the same for both scans.
#define CUEMU_SCANS(name, is_inclusive)                                                                                 \
  template <typename Op>                                                                                                \
  CUEMU_INLINE void name(T input, T& output, Op op, CUEMU_LINE) {                                                       \
    scan<is_inclusive>(input, output, op, nullptr, nullptr, NoPrefix(), line);                                          \
  }                                                                                                                     \
  template <typename Op>                                                                                                \
  CUEMU_INLINE void name(T input, T& output, Op op, T& aggregate, CUEMU_LINE) {                                         \
    scan<is_inclusive>(input, output, op, nullptr, &aggregate, NoPrefix(), line);                                       \
  }                                                                                                                     \
  template <typename Op, typename Prefix>                                                                               \
  CUEMU_INLINE void name(T input, T& output, Op op, Prefix& prefix, CUEMU_LINE) {                                       \
    scan<is_inclusive>(input, output, op, nullptr, nullptr, prefix, line);                                              \
  }                                                                                                                     \
  template <typename Op>                                                                                                \
  CUEMU_INLINE void name(T input, T& output, T initial, Op op, CUEMU_LINE) {                                            \
    scan<is_inclusive>(input, output, op, &initial, nullptr, NoPrefix(), line);                                         \
  }                                                                                                                     \
  template <typename Op>                                                                                                \
  CUEMU_INLINE void name(T input, T& output, T initial, Op op, T& aggregate, CUEMU_LINE) {                              \
    scan<is_inclusive>(input, output, op, &initial, &aggregate, NoPrefix(), line);                                     \
  }                                                                                                                     \
  template <int items, typename Op>                                                                                     \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], Op op, CUEMU_LINE) {                                    \
    scan_arrays<is_inclusive>(input, output, op, nullptr, nullptr, NoPrefix(), line);                                   \
  }                                                                                                                     \
  template <int items, typename Op>                                                                                     \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], Op op, T& aggregate, CUEMU_LINE) {                      \
    scan_arrays<is_inclusive>(input, output, op, nullptr, &aggregate, NoPrefix(), line);                                \
  }                                                                                                                     \
  template <int items, typename Op, typename Prefix>                                                                    \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], Op op, Prefix& prefix, CUEMU_LINE) {                    \
    scan_arrays<is_inclusive>(input, output, op, nullptr, nullptr, prefix, line);                                       \
  }                                                                                                                     \
  template <int items, typename Op>                                                                                     \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], T initial, Op op, CUEMU_LINE) {                         \
    scan_arrays<is_inclusive>(input, output, op, &initial, nullptr, NoPrefix(), line);                                  \
  }                                                                                                                     \
  template <int items, typename Op>                                                                                     \
  CUEMU_INLINE void name(T (&input)[items], T (&output)[items], T initial, Op op, T& aggregate, CUEMU_LINE) {           \
    scan_arrays<is_inclusive>(input, output, op, &initial, &aggregate, NoPrefix(), line);                               \
  }
  CUEMU_SCANS(InclusiveScan, true)
  CUEMU_SCANS(ExclusiveScan, false)
#undef CUEMU_SCANS

 private:
  struct NoPrefix {};

  // Scans the threads' items: their reductions first, then the items behind what comes before the thread.
  template <bool is_inclusive, int items, typename Op, typename Prefix>
  CUEMU_INLINE void scan_arrays(T (&input)[items], T (&output)[items], Op op, const T* initial, T* aggregate,
                                Prefix&& prefix, ::cuemu::Line line) {
    constexpr bool has_prefix = !::std::is_same_v<::std::decay_t<Prefix>, NoPrefix>;
    if (items == 1 && initial == nullptr) {
      return scan<is_inclusive>(input[0], output[0], op, initial, aggregate, prefix, line);
    }
    T before = detail::reduce_items(input, op);
    scan<false>(before, before, op, initial, aggregate, prefix, line);
    detail::scan_items<is_inclusive>(input, output, items, op, before, has_prefix || initial != nullptr || thread_ != 0);
  }

  template <bool is_inclusive, typename Op, typename Prefix>
  CUEMU_INLINE void scan(T input, T& output, Op op, const T* initial, T* aggregate, Prefix&& prefix, ::cuemu::Line line) {
    if constexpr (kByWarps) by_warps<is_inclusive>(input, output, op, initial, aggregate, prefix, line);
    else if constexpr (Raked::kThreads == kThreads) by_one_warp<is_inclusive>(input, output, op, initial, aggregate, prefix, line);
    else by_raking<is_inclusive>(input, output, op, initial, aggregate, prefix, line);
  }

  template <int size, typename Op>
  CUEMU_INLINE void of_warp(T input, T& inclusive, T& exclusive, Op op, const T* initial, T& aggregate, ::cuemu::Line line) {
    typename WarpScan<T, size>::TempStorage none;
    WarpScan<T, size> warp(none);
    if (initial != nullptr) {
      warp.ExclusiveScan(input, exclusive, *initial, op, aggregate, line);
      inclusive = op(exclusive, input);
    } else {
      warp.Scan(input, inclusive, exclusive, op, line);
      aggregate = warp.Broadcast(inclusive, size - 1, line);
    }
  }
  // What the functor gives the first lane, for all lanes.
  template <int size, typename Prefix>
  CUEMU_INLINE T block_prefix(Prefix& prefix, T aggregate, ::cuemu::Line line) {
    const T own = prefix(aggregate);
    return detail::LogicalWarp<size>().from(0, own, line);
  }

  template <bool is_inclusive, typename Op, typename Prefix>
  CUEMU_INLINE void by_one_warp(T input, T& output, Op op, const T* initial, T* aggregate, Prefix&& prefix, ::cuemu::Line line) {
    T inclusive, exclusive, all;
    of_warp<kThreads>(input, inclusive, exclusive, op, initial, all, line);
    output = is_inclusive ? inclusive : exclusive;
    if constexpr (!::std::is_same_v<::std::decay_t<Prefix>, NoPrefix>) {
      const T before = block_prefix<kThreads>(prefix, all, line);
      output = !is_inclusive && thread_ == 0 ? before : op(before, output);
    }
    if (aggregate != nullptr) *aggregate = all;
  }

  template <bool is_inclusive, typename Op, typename Prefix>
  CUEMU_INLINE void by_raking(T input, T& output, Op op, const T* initial, T* aggregate, Prefix&& prefix, ::cuemu::Line line) {
    constexpr int segment = Raked::kSegment;
    storage_[thread_] = input;
    __syncthreads(line.number);
    if (thread_ < Raked::kThreads) {
      const int first = thread_ * segment, count = kThreads - first < segment ? kThreads - first : segment;
      T items[segment];
      for (int i = 0; i < count; ++i) items[i] = storage_[first + i];
      T partial = items[0];
      for (int i = 1; i < count; ++i) partial = op(partial, items[i]);
      T inclusive, before, all;
      of_warp<Raked::kThreads>(partial, inclusive, before, op, initial, all, line);
      bool has_before = thread_ != 0 || initial != nullptr;
      if constexpr (!::std::is_same_v<::std::decay_t<Prefix>, NoPrefix>) {
        const T of_block = block_prefix<Raked::kThreads>(prefix, all, line);
        before = thread_ == 0 ? of_block : op(of_block, before);
        has_before = true;
      }
      detail::scan_items<is_inclusive>(items, items, count, op, before, has_before);
      for (int i = 0; i < count; ++i) storage_[first + i] = items[i];
      if (aggregate != nullptr && thread_ == 0) storage_[kThreads] = all;
    }
    __syncthreads(line.number);
    output = storage_[thread_];
    if (aggregate != nullptr) *aggregate = storage_[kThreads];
  }

  template <bool is_inclusive, typename Op, typename Prefix>
  CUEMU_INLINE void by_warps(T input, T& output, Op op, const T* initial, T* aggregate, Prefix&& prefix, ::cuemu::Line line) {
    const int warp = thread_ / 32, lane = detail::lane_of_warp();
    T inclusive, exclusive, of_own_warp;
    of_warp<32>(input, inclusive, exclusive, op, nullptr, of_own_warp, line);
    if (lane == 31) storage_[warp] = inclusive;
    __syncthreads(line.number);
    T all = storage_[0], before = all;
    for (int i = 1; i < kWarps; ++i) {
      if (i == warp) before = all;
      all = op(all, storage_[i]);
    }
    if (initial != nullptr) before = warp == 0 ? *initial : op(*initial, before);
    const bool has_before = warp != 0 || initial != nullptr;
    output = is_inclusive ? inclusive : exclusive;
    if (has_before) output = !is_inclusive && lane == 0 ? before : op(before, output);
    if (aggregate != nullptr) *aggregate = all;
    if constexpr (!::std::is_same_v<::std::decay_t<Prefix>, NoPrefix>) {
      if (warp == 0) {
        const T of_block = prefix(all);
        if (lane == 0) storage_[kWarps] = of_block;
      }
      __syncthreads(line.number);
      const T of_block = storage_[kWarps];
      output = !is_inclusive && thread_ == 0 ? of_block : op(of_block, output);
    }
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

}  // namespace cub

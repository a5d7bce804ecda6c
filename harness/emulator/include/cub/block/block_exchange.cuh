// Stands in for CUB's rearrangement of a block's items.
#pragma once

#include "../util_type.cuh"

namespace cub {

// Blocked: each thread holds neighbours. Striped: each row of a block's items has one of each thread. Warp-striped: the same
// for each warp's items.
template <typename T, int x, int items, bool warp_time_slicing = false, int y = 1, int z = 1, int = 0>
class BlockExchange {
  static constexpr int kThreads = x * y * z;

 public:
  using TempStorage = detail::Places<T, kThreads * items>;
  CUEMU_INLINE explicit BlockExchange(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockExchange(TempStorage& storage) : storage_(storage) {}

  template <typename Output>
  CUEMU_INLINE void StripedToBlocked(const T (&input)[items], Output (&output)[items], CUEMU_LINE) {
    exchange<true>(input, output, line, striped(), blocked());
  }
  template <typename Output>
  CUEMU_INLINE void BlockedToStriped(const T (&input)[items], Output (&output)[items], CUEMU_LINE) {
    exchange<true>(input, output, line, blocked(), striped());
  }
  template <typename Output>
  CUEMU_INLINE void WarpStripedToBlocked(const T (&input)[items], Output (&output)[items], CUEMU_LINE) {
    exchange<false>(input, output, line, warp_striped(), blocked());
  }
  template <typename Output>
  CUEMU_INLINE void BlockedToWarpStriped(const T (&input)[items], Output (&output)[items], CUEMU_LINE) {
    exchange<false>(input, output, line, blocked(), warp_striped());
  }
  // Each item goes to its rank in the block.
  template <typename Output, typename Rank>
  CUEMU_INLINE void ScatterToBlocked(const T (&input)[items], Output (&output)[items], Rank (&ranks)[items], CUEMU_LINE) {
    exchange<true>(input, output, line, [&](int i) { return static_cast<int>(ranks[i]); }, blocked());
  }
  template <typename Output, typename Rank>
  CUEMU_INLINE void ScatterToStriped(const T (&input)[items], Output (&output)[items], Rank (&ranks)[items], CUEMU_LINE) {
    exchange<true>(input, output, line, [&](int i) { return static_cast<int>(ranks[i]); }, striped());
  }
  // Items with a negative rank, or without a flag, go nowhere.
  template <typename Output, typename Rank>
  CUEMU_INLINE void ScatterToStripedGuarded(const T (&input)[items], Output (&output)[items], Rank (&ranks)[items],
                                            CUEMU_LINE) {
    exchange<true>(input, output, line, [&](int i) { return static_cast<int>(ranks[i]); }, striped());
  }
  template <typename Output, typename Rank, typename Valid>
  CUEMU_INLINE void ScatterToStripedFlagged(const T (&input)[items], Output (&output)[items], Rank (&ranks)[items],
                                            Valid (&valid)[items], CUEMU_LINE) {
    exchange<true>(input, output, line, [&](int i) { return valid[i] ? static_cast<int>(ranks[i]) : -1; }, striped());
  }

  CUEMU_INLINE void StripedToBlocked(T (&values)[items], CUEMU_LINE) { StripedToBlocked(values, values, line); }
  CUEMU_INLINE void BlockedToStriped(T (&values)[items], CUEMU_LINE) { BlockedToStriped(values, values, line); }
  CUEMU_INLINE void WarpStripedToBlocked(T (&values)[items], CUEMU_LINE) { WarpStripedToBlocked(values, values, line); }
  CUEMU_INLINE void BlockedToWarpStriped(T (&values)[items], CUEMU_LINE) { BlockedToWarpStriped(values, values, line); }
  template <typename Rank>
  CUEMU_INLINE void ScatterToBlocked(T (&values)[items], Rank (&ranks)[items], CUEMU_LINE) {
    ScatterToBlocked(values, values, ranks, line);
  }
  template <typename Rank>
  CUEMU_INLINE void ScatterToStriped(T (&values)[items], Rank (&ranks)[items], CUEMU_LINE) {
    ScatterToStriped(values, values, ranks, line);
  }
  template <typename Rank>
  CUEMU_INLINE void ScatterToStripedGuarded(T (&values)[items], Rank (&ranks)[items], CUEMU_LINE) {
    ScatterToStripedGuarded(values, values, ranks, line);
  }
  template <typename Rank, typename Valid>
  CUEMU_INLINE void ScatterToStripedFlagged(T (&values)[items], Rank (&ranks)[items], Valid (&valid)[items], CUEMU_LINE) {
    ScatterToStripedFlagged(values, values, ranks, valid, line);
  }

 private:
  auto blocked() const {
    return [thread = thread_](int i) { return thread * items + i; };
  }
  auto striped() const {
    return [thread = thread_](int i) { return i * kThreads + thread; };
  }
  auto warp_striped() const {
    return [thread = thread_](int i) { return thread / 32 * 32 * items + i * in_warp(thread / 32) + thread % 32; };
  }
  static int in_warp(int warp) { return kThreads - warp * 32 < 32 ? kThreads - warp * 32 : 32; }

  // Within a warp the threads meet, and otherwise in the block.
  template <bool of_block, typename Output, typename To, typename From>
  CUEMU_INLINE void exchange(const T (&input)[items], Output (&output)[items], ::cuemu::Line line, To to, From from) {
    for (int i = 0; i < items; ++i) {
      if (const int place = to(i); place >= 0) storage_[place] = input[i];
    }
    if constexpr (of_block) __syncthreads(line.number);
    else __syncwarp(~0u, line.number);
    for (int i = 0; i < items; ++i) output[i] = static_cast<Output>(storage_[from(i)]);
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

}  // namespace cub

// Stands in for CUB's rearrangement of a warp's items.
#pragma once

#include "../util_type.cuh"

namespace cub {

enum WarpExchangeAlgorithm { WARP_EXCHANGE_SMEM, WARP_EXCHANGE_SHUFFLE };

template <typename T, int items, int size = 32, WarpExchangeAlgorithm = WARP_EXCHANGE_SMEM>
class WarpExchange {
 public:
  using TempStorage = detail::Places<T, items * size>;
  explicit WarpExchange(TempStorage& storage) : storage_(storage) {}

  template <typename Output>
  CUEMU_INLINE void BlockedToStriped(const T (&input)[items], Output (&output)[items], CUEMU_LINE) {
    exchange(input, output, line, [this](int i) { return warp_.lane * items + i; },
             [this](int i) { return i * size + warp_.lane; });
  }
  template <typename Output>
  CUEMU_INLINE void StripedToBlocked(const T (&input)[items], Output (&output)[items], CUEMU_LINE) {
    exchange(input, output, line, [this](int i) { return i * size + warp_.lane; },
             [this](int i) { return warp_.lane * items + i; });
  }
  template <typename Output, typename Rank>
  CUEMU_INLINE void ScatterToStriped(const T (&input)[items], Output (&output)[items], Rank (&ranks)[items], CUEMU_LINE) {
    exchange(input, output, line, [&](int i) { return static_cast<int>(ranks[i]); },
             [this](int i) { return i * size + warp_.lane; });
  }
  template <typename Rank>
  CUEMU_INLINE void ScatterToStriped(T (&values)[items], Rank (&ranks)[items], CUEMU_LINE) {
    ScatterToStriped(values, values, ranks, line);
  }

 private:
  template <typename Output, typename To, typename From>
  CUEMU_INLINE void exchange(const T (&input)[items], Output (&output)[items], ::cuemu::Line line, To to, From from) {
    for (int i = 0; i < items; ++i) storage_[to(i)] = input[i];
    __syncwarp(warp_.mask, line.number);
    for (int i = 0; i < items; ++i) output[i] = storage_[from(i)];
  }

  detail::LogicalWarp<size> warp_;
  TempStorage& storage_;
};

}  // namespace cub

// Stands in for CUB's histograms of a block's items. Both algorithms count alike, with atomic operations.
#pragma once

#include "../util_type.cuh"

namespace cub {

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

template <typename T, int x, int items, int bins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int y = 1, int z = 1, int = 0>
class BlockHistogram {
  static constexpr int kThreads = x * y * z;

 public:
  struct TempStorage {};
  BlockHistogram() = default;
  BlockHistogram(TempStorage&) {}

  template <typename Counter>
  CUEMU_INLINE void InitHistogram(Counter histogram[bins]) {
    for (int bin = thread_; bin < bins; bin += kThreads) histogram[bin] = 0;
  }
  template <typename Counter>
  CUEMU_INLINE void Histogram(T (&values)[items], Counter histogram[bins], CUEMU_LINE) {
    InitHistogram(histogram);
    __syncthreads(line.number);
    Composite(values, histogram);
  }
  template <typename Counter>
  CUEMU_INLINE void Composite(T (&values)[items], Counter histogram[bins]) {
    for (int i = 0; i < items; ++i) {
      ::cuemu::atomic_update(histogram + values[i], [](Counter before) { return static_cast<Counter>(before + 1); });
    }
  }

 private:
  const int thread_ = detail::linear_thread<x, y, z>();
};

}  // namespace cub

// Stands in for CUB's stable sort of segments.
#pragma once

#include "device_radix_sort.cuh"

namespace cub {

struct DeviceSegmentedRadixSort {
#define CUEMU_MORE_TYPES , typename Begins, typename Ends
#define CUEMU_SEGMENTS ::std::ptrdiff_t count CUEMU_COMMA ::std::ptrdiff_t segments CUEMU_COMMA Begins begins CUEMU_COMMA Ends ends
#define CUEMU_SEGMENT_ARGUMENTS \
  count CUEMU_COMMA segments CUEMU_COMMA detail::Each<Begins>{begins} CUEMU_COMMA detail::Each<Ends>{ends}
  CUEMU_SORTS(CUEMU_SEGMENTS, CUEMU_SEGMENT_ARGUMENTS, , false)
  CUEMU_SORTS(CUEMU_SEGMENTS, CUEMU_SEGMENT_ARGUMENTS, Descending, true)
#undef CUEMU_SEGMENT_ARGUMENTS
#undef CUEMU_SEGMENTS
#undef CUEMU_MORE_TYPES

 private:
  static constexpr const char* kName = "DeviceSegmentedRadixSortKernel";
};

}  // namespace cub

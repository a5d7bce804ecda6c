// Stands in for CUB's layout of a block's values for the threads of one warp.
#pragma once

#include "../util_type.cuh"

namespace cub {

// Each of RAKING_THREADS threads takes SEGMENT_LENGTH values that lie one behind the other, with room between segments.
template <typename T, int threads, int = 0>
struct BlockRakingLayout {
  enum {
    SHARED_ELEMENTS = threads,
    MAX_RAKING_THREADS = threads < 32 ? threads : 32,
    SEGMENT_LENGTH = (SHARED_ELEMENTS + MAX_RAKING_THREADS - 1) / MAX_RAKING_THREADS,
    RAKING_THREADS = (SHARED_ELEMENTS + SEGMENT_LENGTH - 1) / SEGMENT_LENGTH,
    HAS_CONFLICTS = (32 % SEGMENT_LENGTH) == 0,
    CONFLICT_DEGREE = HAS_CONFLICTS ? MAX_RAKING_THREADS * SEGMENT_LENGTH / 32 : 1,
    USE_SEGMENT_PADDING = (SEGMENT_LENGTH & 1) == 0 && SEGMENT_LENGTH > 2,
    GRID_ELEMENTS = RAKING_THREADS * (SEGMENT_LENGTH + USE_SEGMENT_PADDING),
    UNGUARDED = SHARED_ELEMENTS % RAKING_THREADS == 0,
  };
  struct alignas(16) _TempStorage {  // CUB's name, which sources repeat
    T buff[GRID_ELEMENTS];
  };
  struct TempStorage : Uninitialized<_TempStorage> {};

  static CUEMU_INLINE T* PlacementPtr(TempStorage& storage, unsigned thread) {
    return storage.Alias().buff + thread + (USE_SEGMENT_PADDING ? thread / SEGMENT_LENGTH : 0);
  }
  static CUEMU_INLINE T* RakingPtr(TempStorage& storage, unsigned thread) {
    return storage.Alias().buff + thread * (SEGMENT_LENGTH + USE_SEGMENT_PADDING);
  }
};

}  // namespace cub

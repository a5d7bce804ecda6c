// Stands in for CUB's stores of a block's items.
#pragma once

#include "block_load.cuh"

namespace cub {

enum BlockStoreAlgorithm {
  BLOCK_STORE_DIRECT,
  BLOCK_STORE_STRIPED,
  BLOCK_STORE_VECTORIZE,
  BLOCK_STORE_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE,
  BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

namespace detail {

template <Arrangement arrangement, int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void store_items(int thread, Iterator to, T (&values)[items]) {
  for (int i = 0; i < items; ++i) to[place_of<arrangement, threads, items>(thread, i)] = values[i];
}
template <Arrangement arrangement, int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void store_items(int thread, Iterator to, T (&values)[items], int valid) {
  for (int i = 0; i < items; ++i) {
    const int place = place_of<arrangement, threads, items>(thread, i);
    if (place < valid) to[place] = values[i];
  }
}

}  // namespace detail

template <typename T, int x, int items, BlockStoreAlgorithm algorithm = BLOCK_STORE_DIRECT, int y = 1, int z = 1, int = 0>
class BlockStore {
  static constexpr int kThreads = x * y * z;
  static constexpr bool kByWarps =
      algorithm == BLOCK_STORE_WARP_TRANSPOSE || algorithm == BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED;
  static constexpr bool kExchanges = kByWarps || algorithm == BLOCK_STORE_TRANSPOSE;
  static_assert(!kByWarps || kThreads % 32 == 0, "transposing by warps needs whole warps");
  using Exchange = BlockExchange<T, x, items, false, y, z>;
  static constexpr detail::Arrangement kArrangement =
      kByWarps                                                               ? detail::Arrangement::warp_striped
      : algorithm == BLOCK_STORE_STRIPED || algorithm == BLOCK_STORE_TRANSPOSE ? detail::Arrangement::striped
                                                                             : detail::Arrangement::blocked;

 public:
  using TempStorage = ::std::conditional_t<kExchanges, typename Exchange::TempStorage, detail::NoStorage>;
  CUEMU_INLINE explicit BlockStore(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockStore(TempStorage& storage) : storage_(storage) {}

  template <typename Iterator>
  CUEMU_INLINE void Store(Iterator to, T (&values)[items], CUEMU_LINE) {
    rearrange(values, line);
    constexpr int in_vector = detail::kInVector<T, items>;
    if constexpr (algorithm == BLOCK_STORE_VECTORIZE && ::std::is_pointer_v<Iterator> && in_vector > 1) {
      using Vector = detail::Vector<T, in_vector>;
      for (int i = 0; i < items; i += in_vector) {
        Vector one;
        for (int k = 0; k < in_vector; ++k) one.values[k] = values[i + k];
        *reinterpret_cast<Vector*>(to + thread_ * items + i) = one;
      }
    } else {
      detail::store_items<kArrangement, kThreads>(thread_, to, values);
    }
  }
  template <typename Iterator>
  CUEMU_INLINE void Store(Iterator to, T (&values)[items], int valid, CUEMU_LINE) {
    rearrange(values, line);
    detail::store_items<kArrangement, kThreads>(thread_, to, values, valid);
  }

 private:
  CUEMU_INLINE void rearrange(T (&values)[items], ::cuemu::Line line) {
    if constexpr (kByWarps) Exchange(storage_).BlockedToWarpStriped(values, line);
    else if constexpr (kExchanges) Exchange(storage_).BlockedToStriped(values, line);
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

template <typename T, int items, typename Iterator>
CUEMU_INLINE void StoreDirectBlocked(int thread, Iterator to, T (&values)[items]) {
  detail::store_items<detail::Arrangement::blocked, 0>(thread, to, values);
}
template <typename T, int items, typename Iterator>
CUEMU_INLINE void StoreDirectBlocked(int thread, Iterator to, T (&values)[items], int valid) {
  detail::store_items<detail::Arrangement::blocked, 0>(thread, to, values, valid);
}
template <int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void StoreDirectStriped(int thread, Iterator to, T (&values)[items]) {
  detail::store_items<detail::Arrangement::striped, threads>(thread, to, values);
}
template <int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void StoreDirectStriped(int thread, Iterator to, T (&values)[items], int valid) {
  detail::store_items<detail::Arrangement::striped, threads>(thread, to, values, valid);
}

}  // namespace cub

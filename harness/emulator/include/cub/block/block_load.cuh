// Stands in for CUB's loads of a block's items.
#pragma once

#include "block_exchange.cuh"

namespace cub {

enum BlockLoadAlgorithm {
  BLOCK_LOAD_DIRECT,
  BLOCK_LOAD_STRIPED,
  BLOCK_LOAD_VECTORIZE,
  BLOCK_LOAD_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE,
  BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};

namespace detail {

// Where a thread's items are in memory.
enum class Arrangement { blocked, striped, warp_striped };
template <Arrangement arrangement, int threads, int items>
CUEMU_INLINE int place_of(int thread, int i) {
  if constexpr (arrangement == Arrangement::blocked) return thread * items + i;
  else if constexpr (arrangement == Arrangement::striped) return i * threads + thread;
  else return thread / 32 * 32 * items + i * 32 + thread % 32;
}
template <Arrangement arrangement, int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void load_items(int thread, Iterator from, T (&values)[items]) {
  for (int i = 0; i < items; ++i) values[i] = from[place_of<arrangement, threads, items>(thread, i)];
}
template <Arrangement arrangement, int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void load_items(int thread, Iterator from, T (&values)[items], int valid) {
  for (int i = 0; i < items; ++i) {
    const int place = place_of<arrangement, threads, items>(thread, i);
    if (place < valid) values[i] = from[place];
  }
}

// The items that one access takes: 4 or 2, up to 16 bytes.
template <typename T, int items>
constexpr int kInVector = items % 4 == 0 && sizeof(T) <= 4 ? 4 : items % 2 == 0 && sizeof(T) <= 8 ? 2 : 1;
template <typename T, int count>
struct alignas(sizeof(T) * count) Vector {
  T values[count];
};

struct NoStorage {};

}  // namespace detail

template <typename T, int x, int items, BlockLoadAlgorithm algorithm = BLOCK_LOAD_DIRECT, int y = 1, int z = 1, int = 0>
class BlockLoad {
  static constexpr int kThreads = x * y * z;
  static constexpr bool kByWarps = algorithm == BLOCK_LOAD_WARP_TRANSPOSE || algorithm == BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED;
  static constexpr bool kExchanges = kByWarps || algorithm == BLOCK_LOAD_TRANSPOSE;
  static_assert(!kByWarps || kThreads % 32 == 0, "transposing by warps needs whole warps");
  using Exchange = BlockExchange<T, x, items, false, y, z>;
  static constexpr detail::Arrangement kArrangement =
      kByWarps                                                             ? detail::Arrangement::warp_striped
      : algorithm == BLOCK_LOAD_STRIPED || algorithm == BLOCK_LOAD_TRANSPOSE ? detail::Arrangement::striped
                                                                           : detail::Arrangement::blocked;

 public:
  using TempStorage = ::std::conditional_t<kExchanges, typename Exchange::TempStorage, detail::NoStorage>;
  CUEMU_INLINE explicit BlockLoad(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockLoad(TempStorage& storage) : storage_(storage) {}

  template <typename Iterator>
  CUEMU_INLINE void Load(Iterator from, T (&values)[items], CUEMU_LINE) {
    constexpr int in_vector = detail::kInVector<T, items>;
    if constexpr (algorithm == BLOCK_LOAD_VECTORIZE && ::std::is_pointer_v<Iterator> && in_vector > 1) {
      using Vector = detail::Vector<T, in_vector>;
      for (int i = 0; i < items; i += in_vector) {
        const Vector one = *reinterpret_cast<const Vector*>(from + thread_ * items + i);
        for (int k = 0; k < in_vector; ++k) values[i + k] = one.values[k];
      }
    } else {
      detail::load_items<kArrangement, kThreads>(thread_, from, values);
    }
    rearrange(values, line);
  }
  // Items behind the valid ones stay as they are, or get the fill.
  template <typename Iterator>
  CUEMU_INLINE void Load(Iterator from, T (&values)[items], int valid, CUEMU_LINE) {
    detail::load_items<kArrangement, kThreads>(thread_, from, values, valid);
    rearrange(values, line);
  }
  template <typename Iterator, typename Fill>
  CUEMU_INLINE void Load(Iterator from, T (&values)[items], int valid, Fill fill, CUEMU_LINE) {
    for (int i = 0; i < items; ++i) values[i] = static_cast<T>(fill);
    Load(from, values, valid, line);
  }

 private:
  CUEMU_INLINE void rearrange(T (&values)[items], ::cuemu::Line line) {
    if constexpr (kByWarps) Exchange(storage_).WarpStripedToBlocked(values, line);
    else if constexpr (kExchanges) Exchange(storage_).StripedToBlocked(values, line);
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

template <typename T, int items, typename Iterator>
CUEMU_INLINE void LoadDirectBlocked(int thread, Iterator from, T (&values)[items]) {
  detail::load_items<detail::Arrangement::blocked, 0>(thread, from, values);
}
template <typename T, int items, typename Iterator>
CUEMU_INLINE void LoadDirectBlocked(int thread, Iterator from, T (&values)[items], int valid) {
  detail::load_items<detail::Arrangement::blocked, 0>(thread, from, values, valid);
}
template <int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void LoadDirectStriped(int thread, Iterator from, T (&values)[items]) {
  detail::load_items<detail::Arrangement::striped, threads>(thread, from, values);
}
template <int threads, typename T, int items, typename Iterator>
CUEMU_INLINE void LoadDirectStriped(int thread, Iterator from, T (&values)[items], int valid) {
  detail::load_items<detail::Arrangement::striped, threads>(thread, from, values, valid);
}

}  // namespace cub

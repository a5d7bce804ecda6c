// Stands in for CUB's stable sort of a block's keys by some of their bits.
#pragma once

#include "block_exchange.cuh"
#include "block_scan.cuh"

namespace cub {

namespace detail {

template <::std::size_t bytes> struct BitsOfSize;
template <> struct BitsOfSize<1> { using type = ::std::uint8_t; };
template <> struct BitsOfSize<2> { using type = ::std::uint16_t; };
template <> struct BitsOfSize<4> { using type = ::std::uint32_t; };
template <> struct BitsOfSize<8> { using type = ::std::uint64_t; };
template <typename Key> using BitsOf = typename BitsOfSize<sizeof(Key)>::type;

// Bits that order as the keys do. Both zeros of floating point are the same.
template <typename Key>
CUEMU_INLINE BitsOf<Key> ordered_bits(const Key& key) {
  using Bits = BitsOf<Key>;
  constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Key) - 1));
  Bits bits;
  __builtin_memcpy(&bits, &key, sizeof bits);
  if constexpr (::std::is_integral_v<Key>) return ::std::is_signed_v<Key> ? static_cast<Bits>(bits ^ sign) : bits;
  else {
    if (bits == sign) bits = 0;
    return static_cast<Bits>((bits & sign) != 0 ? ~bits : bits | sign);
  }
}

// How many of the keys come before the one at a place. The checking mode does not look at these reads: those of the
// exchange that follows are enough.
template <typename Bits>
__attribute__((noinline, no_sanitize("thread"))) int rank_of(const Bits* all, int count, int place, int first_bit,
                                                              Bits mask, bool is_descending) {
  const Bits own = all[place] >> first_bit & mask;
  int before = 0;
  for (int i = 0; i < count; ++i) {
    const Bits other = all[i] >> first_bit & mask;
    before += (is_descending ? other > own : other < own) || (other == own && i < place);
  }
  return before;
}

}  // namespace detail

template <typename Key, int x, int items, typename Value = NullType, int = 4, bool = true,
          BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int y = 1, int z = 1, int = 0>
class BlockRadixSort {
  static constexpr int kThreads = x * y * z, kBits = 8 * sizeof(Key);
  static constexpr bool kHasValues = !::std::is_same_v<Value, NullType>;
  using Bits = detail::BitsOf<Key>;
  using Keys = BlockExchange<Key, x, items, false, y, z>;
  using Values = BlockExchange<::std::conditional_t<kHasValues, Value, char>, x, items, false, y, z>;

 public:
  union TempStorage {
    detail::Places<Bits, kThreads * items> bits;
    typename Keys::TempStorage keys;
    typename Values::TempStorage values;
  };
  CUEMU_INLINE explicit BlockRadixSort(CUEMU_LINE) : storage_(detail::private_storage<TempStorage>(line)) {}
  CUEMU_INLINE BlockRadixSort(TempStorage& storage) : storage_(storage) {}

#define CUEMU_SORTS(name, is_descending, becomes_striped)                                                               \
  CUEMU_INLINE void name(Key (&keys)[items], int first = 0, int last = kBits, CUEMU_LINE) {                             \
    sort<becomes_striped>(keys, static_cast<Value(*)[items]>(nullptr), first, last, is_descending, line);               \
  }                                                                                                                     \
  CUEMU_INLINE void name(Key (&keys)[items], Value (&values)[items], int first = 0, int last = kBits, CUEMU_LINE) {     \
    sort<becomes_striped>(keys, &values, first, last, is_descending, line);                                             \
  }
  CUEMU_SORTS(Sort, false, false)
  CUEMU_SORTS(SortDescending, true, false)
  CUEMU_SORTS(SortBlockedToStriped, false, true)
  CUEMU_SORTS(SortDescendingBlockedToStriped, true, true)
#undef CUEMU_SORTS

 private:
  template <bool becomes_striped>
  CUEMU_INLINE void sort(Key (&keys)[items], Value (*values)[items], int first, int last, bool is_descending,
                         ::cuemu::Line line) {
    const int width = last - first;
    const Bits mask = static_cast<Bits>(width >= kBits ? ~Bits{0} : (Bits{1} << width) - 1);
    for (int i = 0; i < items; ++i) storage_.bits[thread_ * items + i] = detail::ordered_bits(keys[i]);
    __syncthreads(line.number);
    int ranks[items];
    for (int i = 0; i < items; ++i) {
      ranks[i] = detail::rank_of(&storage_.bits[0], kThreads * items, thread_ * items + i, first, mask, is_descending);
    }
    __syncthreads(line.number);
    if constexpr (becomes_striped) Keys(storage_.keys).ScatterToStriped(keys, ranks, line);
    else Keys(storage_.keys).ScatterToBlocked(keys, ranks, line);
    if constexpr (kHasValues) {
      if (values == nullptr) return;
      __syncthreads(line.number);
      if constexpr (becomes_striped) Values(storage_.values).ScatterToStriped(*values, ranks, line);
      else Values(storage_.values).ScatterToBlocked(*values, ranks, line);
    }
  }

  TempStorage& storage_;
  const int thread_ = detail::linear_thread<x, y, z>();
};

}  // namespace cub
